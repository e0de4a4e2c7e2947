// The probability that the model gives to translations that are there already.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/transformer.h"
#include "tandem/translation.h"
#include "tensor/arena.h"

namespace tandem::decode {

// Not thread-safe: one call at a time. Everything given must outlive it.
class PairScorer {
 public:
  PairScorer(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights);

  // Sides as ids without bos and eos. A pair with a side that the model cannot take is left out.
  std::vector<PairScore> score(std::span<const std::vector<int32_t>> sources,
                               std::span<const std::vector<int32_t>> targets, const CallOptions& options);

 private:
  std::vector<backend::LossTotals> totals_of(std::span<const std::vector<int32_t>> sources,
                                             std::span<const std::vector<int32_t>> targets,
                                             std::span<const size_t> chosen);

  backend::Backend& backend_;
  model::Transformer& model_;
  nn::Weights weights_;
  Arena arena_;
  int64_t most_sentences_ = INT64_MAX;  // that the memory holds, as far as is known
};

}  // namespace tandem::decode
