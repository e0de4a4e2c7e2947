#pragma once

#include "reference/values.h"

namespace tandem::reference {

// With x = (sum - mean) * rstd and g = dnormed * gamma, of each row:
//   d = rstd * (g - mean(g) - x mean(g x)) + dsum,   dresidual = d,   dbranch = d * mask
// and over the rows: dgamma = sum of dnormed x, dbeta = of dnormed, dbias = of dbranch.
inline void compute(const op::ResidualNormBackward& op) {
  const Values dnormed(op.dnormed), dsum(op.dsum), sum(op.sum), statistics(op.statistics), gamma(op.gamma);
  Values dresidual(sum.rows, sum.cols), dbranch = dresidual, share = dresidual;
  for (int64_t r = 0; r < sum.rows; ++r) {
    const auto x = [&](int64_t c) { return (sum(r, c) - statistics(r, 0)) * statistics(r, 1); };
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < sum.cols; ++c) {
      mean_g += dnormed(r, c) * gamma(0, c) / static_cast<double>(sum.cols);
      mean_gx += dnormed(r, c) * gamma(0, c) * x(c) / static_cast<double>(sum.cols);
    }
    for (int64_t c = 0; c < sum.cols; ++c) {
      const double d = statistics(r, 1) * (dnormed(r, c) * gamma(0, c) - mean_g - x(c) * mean_gx);
      dresidual(r, c) = d + (dsum.empty() ? 0 : dsum(r, c));
      dbranch(r, c) = dresidual(r, c) * mask(op.dropout, r, c);
      share(r, c) = dnormed(r, c) * x(c);
    }
  }
  write(op.dresidual, dresidual);
  write(op.dbranch, dbranch);
  add_column_sums(op.dgamma, share, op.accumulate);
  add_column_sums(op.dbeta, dnormed, op.accumulate);
  add_column_sums(op.dbias, dbranch, op.accumulate);
}

}  // namespace tandem::reference
