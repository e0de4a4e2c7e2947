// Output projection and label-smoothed cross-entropy. Logits exist for a chunk of rows at a time, so that memory does
// not grow with rows * vocabulary.
#pragma once

#include "nn/context.h"

namespace tandem::nn {

struct OutputLoss {
  ParameterLayout::Id matrix = -1;  // [V, D]; may be an embedding's table
  int64_t chunk_rows = 0;           // rows of logits held at one time; 0 = the backend's choice

  // Adds to *totals. hidden C [T, D], labels i32 [1, T], -1 = none.
  void evaluate(const Context& context, backend::LossTotals* totals, const View& hidden, const View& labels,
                float smoothing) const;
  // Also runs the backward pass: writes dhidden [T, D] and adds to the matrix's gradient.
  void train(const Context& context, backend::LossTotals* totals, const View& dhidden, const View& hidden,
             const View& labels, float smoothing) const;
  // C [T, V]
  View logits(const Context& context, const View& hidden) const;
};

}  // namespace tandem::nn
