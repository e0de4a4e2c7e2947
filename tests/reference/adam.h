#pragma once

#include "reference/values.h"

namespace tandem::reference {

// torch.optim.Adam and AdamW, written as in PyTorch's single-tensor implementation.
inline void compute(const op::Adam& op) {
  Values w(op.masters), m(op.m), v(op.v), gradients(op.gradients);
  const backend::AdamSettings& s = op.settings;
  const auto beta1 = static_cast<double>(s.beta1), beta2 = static_cast<double>(s.beta2);
  const auto decay = static_cast<double>(s.weight_decay), rate = static_cast<double>(op.state->learning_rate);
  for (int64_t i = 0; op.update->finite != 0 && i < w.cols; ++i) {
    double g = gradients(0, i) * static_cast<double>(op.update->clip_factor);
    if (s.decoupled) {
      w(0, i) *= 1 - rate * decay;
    } else {
      g += decay * w(0, i);
    }
    m(0, i) += (g - m(0, i)) * (1 - beta1);
    v(0, i) = v(0, i) * beta2 + (1 - beta2) * g * g;
    const double root = std::sqrt(v(0, i)) / std::sqrt(static_cast<double>(op.update->bias_correction2));
    const double step = rate / static_cast<double>(op.update->bias_correction1);
    w(0, i) -= step * m(0, i) / (root + static_cast<double>(s.epsilon));
  }
  write(op.masters, w);
  write(op.m, m);
  write(op.v, v);
  if (op.update->finite != 0) {
    write(op.compute, w);
  }
}

}  // namespace tandem::reference
