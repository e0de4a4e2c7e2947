#include "train/loss_evaluation.h"

#include <algorithm>
#include <optional>

#include "data/batcher.h"
#include "train/batch_layout.h"
#include "train/device_batch.h"

namespace tandem {

namespace {

constexpr int64_t kTokensAtATime = 4096;  // of both sides together: bounds the memory of one forward pass
constexpr int64_t kPairsAtATime = 512;

// Gives batches to the backend: on true counts, or, where it likes a fixed shape, as one piece of work that is given op
// by op the first time, which makes the arena as large as it must be, then recorded and run again.
class Evaluation {
 public:
  Evaluation(Backend& backend, const Transformer& model, const Weights& weights, LossTotals* totals, Arena& arena)
      : backend_(backend), model_(model), weights_(weights), totals_(totals), arena_(arena) {
    if (backend.fixed_shape()) {
      const int64_t tokens = std::max(kTokensAtATime, model.config().max_length);
      layout_.emplace(RoundCapacity{tokens, tokens, kPairsAtATime}, model.config().max_length, model.config());
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
    if (given_++ < 2) {
      arena_.reset();
    }
    const Batch batch = layout_->batch(feed_->block(), memory_);
    if (given_ == 1) {
      run(batch);
      return;
    }
    if (recording_ == nullptr) {
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

}  // namespace

PairLoss evaluate_loss(Backend& backend, Transformer& model, const Weights& weights, const std::vector<Ids>& source,
                       const std::vector<Ids>& target, Arena& arena) {
  require(source.size() == target.size(), "{} source and {} target sentences", source.size(), target.size());
  PairLoss result;
  DeviceValue<LossTotals> totals(backend);
  totals.set({});
  Evaluation evaluation(backend, model, weights, totals.pointer(), arena);
  const auto limit = static_cast<size_t>(model.config().max_length);
  std::vector<Ids> part_source, part_target;
  int64_t tokens = 0;
  const auto flush = [&] {
    if (!part_source.empty()) {
      evaluation.give(pack(part_source, part_target));
      part_source.clear();
      part_target.clear();
      tokens = 0;
    }
  };
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].size() + 1 > limit || target[i].size() + 1 > limit) {
      ++result.too_long;
      continue;
    }
    const auto more = static_cast<int64_t>(source[i].size() + target[i].size()) + 2;
    if (tokens + more > kTokensAtATime || static_cast<int64_t>(part_source.size()) == kPairsAtATime) {
      flush();
    }
    part_source.push_back(source[i]);
    part_target.push_back(target[i]);
    tokens += more;
  }
  flush();
  result.totals = totals.get();
  return result;
}

}  // namespace tandem
