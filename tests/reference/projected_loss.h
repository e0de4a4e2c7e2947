#pragma once

#include "reference/cross_entropy.h"

namespace tandem::reference {

// logits = x w', as memory holds them, then their CrossEntropy; with d its gradient, dx = d w and dw = d' x, or +=
inline void compute(const op::ProjectedLoss& op) {
  const Values x(op.x), w(op.w.plain()), old(op.dw);
  Values d = product(x, w);
  for (double& logit : d.data) {
    logit = rounded(logit, op.logits.dtype);
  }
  compute(op::CrossEntropy{
      .totals = op.totals, .logits = d.view(), .labels = op.labels, .smoothing = op.smoothing, .state = op.state});
  write(op.dx, product(d, transposed(w)));
  Values dw = product(transposed(d), transposed(x));
  for (size_t i = 0; op.accumulate && i < dw.data.size(); ++i) {
    dw.data[i] += old.data[i];
  }
  write(op.dw, dw);
}

}  // namespace tandem::reference
