#include "train/loss_evaluation.h"

#include <algorithm>
#include <optional>

#include "core/log.h"
#include "data/batcher.h"
#include "train/batch_layout.h"
#include "train/device_batch.h"
#include "train/planned_bytes.h"

namespace tandem {

namespace {

// Of a forward pass, which bounds its memory: tokens a side, unless a sentence is longer.
constexpr int64_t kTokensAtATime = 2048;
constexpr int64_t kPairsAtATime = 512;

int64_t most_tokens(const ModelConfig& model) { return std::max(kTokensAtATime, model.max_length); }

BatchLayout layout_for(const ModelConfig& model, int64_t tokens) {
  return {RoundCapacity{tokens, tokens, kPairsAtATime}, model.max_length, model};
}

size_t planned_bytes_for(const Backend& backend, const ModelConfig& model, DType compute, int64_t tokens) {
  return planned_bytes(
      backend, model, compute, layout_for(model, tokens),
      [](const Transformer& transformer, const ModelState& weights, const Batch& batch, LossTotals* totals,
         Arena& arena) { transformer.evaluate(weights.weights(), batch, 0, totals, arena); });
}

// Gives batches of at most `tokens` a side to the backend: on true counts, or, where it likes a fixed shape, as one
// piece of work that is given op by op the first time, then recorded and run again.
class Evaluation {
 public:
  Evaluation(Backend& backend, const Transformer& model, const Weights& weights, int64_t tokens, LossTotals* totals,
             Arena& arena)
      : backend_(backend), model_(model), weights_(weights), totals_(totals), arena_(arena) {
    if (backend.traits().replays) {
      layout_.emplace(layout_for(model.config(), tokens));
      arena.reset();
      arena.reserve(planned_bytes_for(backend, model.config(), weights.compute.dtype, tokens));
      feed_ = backend.make_feed(layout_->bytes());
      memory_ = backend.allocate(1).memory();
    }
  }

  void give(const HostBatch& host) {
    if (!layout_) {
      arena_.reset();
      run(upload_batch(backend_, arena_, host, nullptr));
      return;
    }
    layout_->write(feed_->next(), host, {});
    feed_->send();
    const Batch batch = layout_->batch(feed_->block(), memory_);
    if (given_++ == 0) {
      arena_.reset();
      run(batch);
      return;
    }
    if (recording_ == nullptr) {
      arena_.reset();
      recording_ = backend_.record([this, batch] { run(batch); });
    }
    recording_->run();
  }

 private:
  void run(const Batch& batch) { model_.evaluate(weights_, batch, 0, totals_, arena_); }

  Backend& backend_;
  const Transformer& model_;
  const Weights& weights_;
  LossTotals* totals_;
  Arena& arena_;
  std::optional<BatchLayout> layout_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<Recording> recording_;
  Memory memory_ = Memory::host;
  int64_t given_ = 0;
};

PairLoss evaluate_parts(Backend& backend, const Transformer& model, const Weights& weights,
                        const std::vector<Ids>& source, const std::vector<Ids>& target, int64_t most, Arena& arena) {
  PairLoss result;
  DeviceValue<LossTotals> totals(backend);
  totals.set({});
  Evaluation evaluation(backend, model, weights, most, totals.pointer(), arena);
  const auto limit = static_cast<size_t>(model.config().max_length);
  std::vector<Ids> part_source, part_target;
  int64_t source_tokens = 0, target_tokens = 0;
  const auto flush = [&] {
    if (!part_source.empty()) {
      evaluation.give(pack(part_source, part_target));
      part_source.clear();
      part_target.clear();
      source_tokens = target_tokens = 0;
    }
  };
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].size() + 1 > limit || target[i].size() + 1 > limit) {
      ++result.too_long;
      continue;
    }
    const auto more_source = static_cast<int64_t>(source[i].size()) + 1;
    const auto more_target = static_cast<int64_t>(target[i].size()) + 1;
    if (std::max(source_tokens + more_source, target_tokens + more_target) > most ||
        static_cast<int64_t>(part_source.size()) == kPairsAtATime) {
      flush();
    }
    part_source.push_back(source[i]);
    part_target.push_back(target[i]);
    source_tokens += more_source;
    target_tokens += more_target;
  }
  flush();
  result.totals = totals.get();
  return result;
}

}  // namespace

size_t planned_evaluation_bytes(const Backend& backend, const ModelConfig& model, DType compute) {
  return planned_bytes_for(backend, model, compute, most_tokens(model));
}

PairLoss evaluate_loss(Backend& backend, Transformer& model, const Weights& weights, const std::vector<Ids>& source,
                       const std::vector<Ids>& target, Arena& arena) {
  require(source.size() == target.size(), "{} source and {} target sentences", source.size(), target.size());
  for (int64_t tokens = most_tokens(model.config());;) {
    try {
      return evaluate_parts(backend, model, weights, source, target, tokens, arena);
    } catch (const OutOfMemory& error) {
      arena.clear();
      if (tokens == model.config().max_length) {
        throw;
      }
      tokens = std::max(tokens / 2, model.config().max_length);
      log::warning("{}; the loss is computed over {} tokens at a time", error.what(), tokens);
    }
  }
}

}  // namespace tandem
