// One micro-batch in the backend's memory, as the model reads it. See data/batcher.h for how it is made.
#pragma once

#include "backend/backend.h"

namespace tandem::model {

struct PackedSide {
  View tokens;    // i32 [1, rows]: what the model reads (target: bos w1..wn)
  View position;  // i32 [1, rows]: place in the sentence, from 0
  View starts;    // i32 [1, sentences + 1]
  int64_t longest = 0;
  backend::TokenOrder order;     // used by the embedding's gradient; empty in evaluation
  backend::RowParts parts = {};  // used by the gradients of matrices

  int64_t rows() const { return tokens.cols; }
};

struct Batch {
  PackedSide source;
  PackedSide target;
  View labels;                                // i32 [1, target rows]: w1..wn eos; -1 = none
  const backend::StepState* state = nullptr;  // lies in the backend's memory; null in evaluation
};

}  // namespace tandem::model
