#pragma once

#include <algorithm>

#include "reference/values.h"

namespace tandem::reference {

inline double sum_of_squares(const ConstView& view) {
  const Values x(view);
  return dot(x.row(0), x.row(0), x.cols);
}

inline void prepare(backend::UpdateState& update, double squares, const backend::UpdateSettings& settings) {
  const auto beta1 = static_cast<double>(settings.adam.beta1), beta2 = static_cast<double>(settings.adam.beta2);
  const auto most = static_cast<double>(settings.max_norm);
  update.norm = std::sqrt(squares);
  update.finite = std::isfinite(squares) ? 1 : 0;
  update.updates += update.finite;
  update.clip_factor = most > 0 && update.finite != 0 ? static_cast<float>(std::fmin(1, most / update.norm)) : 1;
  const double t = update.updates;
  update.bias_correction1 = static_cast<float>(1 - std::pow(beta1, t));
  update.bias_correction2 = static_cast<float>(1 - std::pow(beta2, t));
  update.average_decay = std::min(settings.average_decay, static_cast<float>((1 + t) / (10 + t)));
}

inline void compute(const op::SumOfSquares& op) { *op.sum.host<double>() = sum_of_squares(op.x); }

inline void compute(const op::PrepareUpdate& op) {
  double squares = 0;
  for (const double sum : Values(op.sums).data) {
    squares += sum;
  }
  prepare(*op.update, squares, op.settings);
}

inline void compute(const op::GradientNorm& op) { prepare(*op.update, sum_of_squares(op.gradients), op.settings); }

}  // namespace tandem::reference
