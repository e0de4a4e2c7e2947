#pragma once

#include "reference/values.h"

namespace tandem::reference {

// The derivative at x; for relu also at its value.
inline double slope(double x, backend::Activation activation) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  switch (activation) {
    case backend::Activation::none:
      return 1;
    case backend::Activation::relu:
      return x > 0 ? 1 : 0;
    case backend::Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    case backend::Activation::swish:
      return sigmoid + x * sigmoid * (1 - sigmoid);
  }
  return 1;
}

// dx = (dy w) * activation' * dropout mask, or +=
inline void compute(const op::LinearBackwardInput& op) {
  const Values saved(op.saved), old(op.dx);
  Values dx = product(Values(op.dy), transposed(Values(op.w.plain())));
  for (int64_t r = 0; r < dx.rows; ++r) {
    for (int64_t c = 0; c < dx.cols; ++c) {
      dx(r, c) *= (saved.empty() ? 1 : slope(saved(r, c), op.activation)) * mask(op.dropout, r, c);
      dx(r, c) += op.accumulate ? old(r, c) : 0;
    }
  }
  write(op.dx, dx);
  add_column_sums(op.column_sums, dx, op.accumulate_sums);
}

}  // namespace tandem::reference
