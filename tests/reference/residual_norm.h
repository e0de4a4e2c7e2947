#pragma once

#include "reference/values.h"

namespace tandem::reference {

// sum = residual + dropout(branch); normed = (sum - mean) * rstd * gamma + beta. The sum counts as memory holds it:
// what the backward pass will read is what is normed.
inline void residual_norm(const op::ResidualNorm& op, const Values& branch) {
  const Values gamma(op.gamma), beta(op.beta);
  Values sum(op.residual), normed(sum.rows, sum.cols), statistics(sum.rows, 2);
  const auto count = static_cast<double>(sum.cols);
  for (int64_t r = 0; r < sum.rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < sum.cols; ++c) {
      const double added = branch.empty() ? 0 : branch(r, c) * mask(op.dropout, r, c);
      sum(r, c) = rounded(sum(r, c) + added, op.residual.dtype);
      mean += sum(r, c) / count;
    }
    for (int64_t c = 0; c < sum.cols; ++c) {
      variance += (sum(r, c) - mean) * (sum(r, c) - mean) / count;
    }
    const double rstd = 1 / std::sqrt(variance + backend::kNormEpsilon);
    for (int64_t c = 0; c < sum.cols; ++c) {
      normed(r, c) = (sum(r, c) - mean) * rstd * gamma(0, c) + beta(0, c);
    }
    statistics(r, 0) = mean;
    statistics(r, 1) = rstd;
  }
  write(op.sum, sum);
  write(op.normed, normed);
  write(op.statistics, statistics);
}

inline void compute(const op::ResidualNorm& op) { residual_norm(op, Values(op.branch)); }

}  // namespace tandem::reference
