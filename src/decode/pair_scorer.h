// Computes the model's probabilities of existing translations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/transformer.h"
#include "tandem/translation.h"
#include "tensor/arena.h"

namespace tandem::decode {

// Not thread-safe: one call at a time. The constructor's arguments must outlive this object.
class PairScorer {
 public:
  PairScorer(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights);

  // Sides are ids without bos and eos. A pair with a side that is too long for the model is left out.
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
  int64_t most_sentences_ = INT64_MAX;  // most sentences that fit the memory, as far as is known
};

}  // namespace tandem::decode
