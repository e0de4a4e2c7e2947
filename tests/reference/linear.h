#pragma once

#include "reference/values.h"

namespace tandem::reference {

inline double activate(double x, backend::Activation activation) {
  switch (activation) {
    case backend::Activation::none:
      return x;
    case backend::Activation::relu:
      return x > 0 ? x : 0;
    case backend::Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case backend::Activation::swish:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// y = dropout(activation(x w' + bias))
inline void compute(const op::Linear& op) {
  const Values bias(op.bias);
  Values pre = product(Values(op.x), Values(op.w.plain())), y(pre.rows, pre.cols);
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t c = 0; c < y.cols; ++c) {
      pre(r, c) += bias.empty() ? 0 : bias(0, c);
      y(r, c) = activate(pre(r, c), op.activation) * mask(op.dropout, r, c);
    }
  }
  write(op.pre, pre);
  write(op.y, y);
}

}  // namespace tandem::reference
