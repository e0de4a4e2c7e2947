// The loss of given sentence pairs in evaluation mode: no dropout, every pair once.
#pragma once

#include <vector>

#include "model/transformer.h"

namespace tandem::train {

using Ids = std::vector<int32_t>;  // pieces of one sentence, without bos and eos

struct PairLoss {
  backend::LossTotals totals;
  int64_t too_long = 0;  // pairs left out because a side exceeds the model's length

  double nll() const { return totals.nll / totals.tokens; }  // nats a target token, the end mark counted
  double accuracy() const { return totals.correct / totals.tokens; }
};

// Bytes that it takes from the arena on a backend that likes a fixed shape.
size_t planned_evaluation_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute);

PairLoss evaluate_loss(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights,
                       const std::vector<Ids>& source, const std::vector<Ids>& target, Arena& arena);

}  // namespace tandem::train
