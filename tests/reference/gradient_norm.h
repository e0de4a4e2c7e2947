#pragma once

#include <algorithm>

#include "reference/values.h"

namespace tandem::reference {

inline void compute(const op::SumOfSquares& op) {
  const Values x(op.x);
  *op.sum.host<double>() = dot(x.row(0), x.row(0), x.cols);
}

inline void compute(const op::PrepareUpdate& op) {
  backend::UpdateState& update = *op.update;
  const backend::UpdateSettings& settings = op.settings;
  double squares = 0;
  for (const double sum : Values(op.sums).data) {
    squares += sum;
  }
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

}  // namespace tandem::reference
