#pragma once

#include "reference/residual_norm.h"

namespace tandem::reference {

// ResidualNorm of the branch x w' + bias
inline void compute(const op::LinearResidualNorm& op) {
  const Values bias(op.bias);
  Values branch = product(Values(op.x), Values(op.w.plain()));
  for (int64_t r = 0; r < branch.rows; ++r) {
    for (int64_t c = 0; c < branch.cols; ++c) {
      branch(r, c) += bias.empty() ? 0 : bias(0, c);
    }
  }
  residual_norm({.sum = op.sum,
                 .normed = op.normed,
                 .statistics = op.statistics,
                 .residual = op.residual,
                 .gamma = op.gamma,
                 .beta = op.beta,
                 .dropout = op.dropout},
                branch);
}

}  // namespace tandem::reference
