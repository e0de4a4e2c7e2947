#include "train/loss_evaluation.h"

#include <algorithm>

#include "core/log.h"
#include "data/batcher.h"
#include "train/batch_work.h"
#include "train/planned_bytes.h"

namespace tandem::train {

namespace {

// Of a forward pass, which bounds its memory: tokens a side, unless a sentence is longer.
constexpr int64_t kTokensAtATime = 2048;
constexpr int64_t kPairsAtATime = 512;

int64_t most_tokens(const model::ModelConfig& model) { return std::max(kTokensAtATime, model.max_length); }

BatchLayout layout_for(const model::ModelConfig& model, int64_t tokens) {
  return {data::MicroBatchCapacity{tokens, tokens, kPairsAtATime}, model.max_length, model};
}

size_t planned_bytes_for(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                         int64_t tokens) {
  return planned_bytes(backend, model, compute, layout_for(model, tokens),
                       [](const model::Transformer& transformer, const ModelState& weights, const model::Batch& batch,
                          backend::LossTotals* totals,
                          Arena& arena) { transformer.evaluate(weights.weights(), batch, 0, totals, arena); });
}

PairLoss evaluate_parts(backend::Backend& backend, const model::Transformer& model, const nn::Weights& weights,
                        const std::vector<Ids>& source, const std::vector<Ids>& target, int64_t most, Arena& arena) {
  PairLoss result;
  const Buffer memory = backend.allocate(sizeof(backend::LossTotals));
  const View words = memory.view(DType::i32, 1, sizeof(backend::LossTotals) / sizeof(int32_t));
  auto* totals = static_cast<backend::LossTotals*>(memory.data());
  backend.fill_zero(words);
  BatchWork work(backend, model.config(), {layout_for(model.config(), most)});
  arena.reset();
  if (work.replays()) {  // then the arena must not grow
    arena.reserve(planned_bytes_for(backend, model.config(), weights.compute.dtype, most));
  }
  const auto limit = static_cast<size_t>(model.config().max_length);
  std::vector<Ids> part_source, part_target;
  int64_t source_tokens = 0, target_tokens = 0;
  const auto flush = [&] {
    if (!part_source.empty()) {
      work.give(data::pack(part_source, part_target), {}, {}, 0, true, [&](const BatchWork::Given& given) {
        arena.reset();
        model.evaluate(weights, given.batch, 0, totals, arena);
      });
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
  backend.download(&result.totals, words);
  return result;
}

}  // namespace

size_t planned_evaluation_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute) {
  return planned_bytes_for(backend, model, compute, most_tokens(model));
}

PairLoss evaluate_loss(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights,
                       const std::vector<Ids>& source, const std::vector<Ids>& target, Arena& arena) {
  require(source.size() == target.size(), "{} source and {} target sentences", source.size(), target.size());
  for (int64_t tokens = most_tokens(model.config());;) {
    try {
      return evaluate_parts(backend, model, weights, source, target, tokens, arena);
    } catch (const backend::OutOfMemory& error) {
      arena.clear();
      if (tokens == model.config().max_length) {
        throw;
      }
      tokens = std::max(tokens / 2, model.config().max_length);
      log::warning("{}; the loss is computed over {} tokens at a time", error.what(), tokens);
    }
  }
}

}  // namespace tandem::train
