#pragma once

#include "reference/values.h"

namespace tandem::reference {

// dw = dy' x and dbias = the column sums of dy, or +=
inline void compute(const op::LinearBackwardWeights& op) {
  for (const backend::WeightGradient& gradient : op.gradients) {
    const Values dy(gradient.dy), old(gradient.dw);
    Values dw = product(transposed(dy), transposed(Values(gradient.x)));
    for (size_t i = 0; op.accumulate && i < dw.data.size(); ++i) {
      dw.data[i] += old.data[i];
    }
    write(gradient.dw, dw);
    add_column_sums(gradient.dbias, dy, op.accumulate);
  }
}

}  // namespace tandem::reference
