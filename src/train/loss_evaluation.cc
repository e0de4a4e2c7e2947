#include "train/loss_evaluation.h"

#include "data/batcher.h"
#include "train/device_batch.h"

namespace tandem {

namespace {

constexpr size_t kTokensAtATime = 4096;  // bounds the memory of one forward pass

}  // namespace

PairLoss evaluate_loss(Backend& backend, Transformer& model, const Weights& weights, const std::vector<Ids>& source,
                       const std::vector<Ids>& target, Arena& arena) {
  require(source.size() == target.size(), "{} source and {} target sentences", source.size(), target.size());
  PairLoss result;
  DeviceValue<LossTotals> totals(backend);
  totals.set({});
  const auto limit = static_cast<size_t>(model.config().max_length);
  std::vector<Ids> part_source, part_target;
  size_t tokens = 0;
  const auto flush = [&] {
    if (!part_source.empty()) {
      arena.reset();
      const HostBatch host = pack(part_source, part_target);
      model.evaluate(weights, upload_batch(backend, arena, host, nullptr), 0, totals.pointer(), arena);
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
    part_source.push_back(source[i]);
    part_target.push_back(target[i]);
    tokens += source[i].size() + target[i].size() + 2;
    if (tokens >= kTokensAtATime) {
      flush();
    }
  }
  flush();
  result.totals = totals.get();
  return result;
}

}  // namespace tandem
