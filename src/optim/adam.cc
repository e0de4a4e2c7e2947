#include "optim/adam.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tandem {

Adam::Adam(Backend& backend, int64_t size, const AdamSettings& settings, float max_norm, float average_decay,
           DType master)
    : backend_(backend),
      size_(size),
      settings_(settings),
      max_norm_(max_norm),
      average_decay_(average_decay),
      master_(master),
      m_(backend.allocate(static_cast<size_t>(size) * size_of(master))),
      v_(backend.allocate(static_cast<size_t>(size) * size_of(master))),
      norm_(backend.allocate(sizeof(GradientNorm))) {
  backend_.fill_zero(m());
  backend_.fill_zero(v());
}

void Adam::prepare(StepState& state, double learning_rate) const {
  const auto t = static_cast<double>(updates_ + 1);
  state.learning_rate = static_cast<float>(learning_rate);
  state.bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(settings_.beta1), t));
  state.bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(settings_.beta2), t));
}

float Adam::average_decay() const {
  const auto t = static_cast<float>(updates_ + 1);
  return std::min(average_decay_, (1 + t) / (10 + t));
}

GradientNorm Adam::step(const AdamBuffers& buffers, const StepState* state) {
  require(buffers.masters.size() == size_ && buffers.gradients.size() == size_,
          "an optimizer for {} parameters was given {} weights and {} gradients", size_, buffers.masters.size(),
          buffers.gradients.size());
  auto* norm = static_cast<GradientNorm*>(norm_.data());
  backend_.gradient_norm(norm, buffers.gradients, max_norm_);
  backend_.adam(buffers.masters, m(), v(), buffers.compute, buffers.gradients, settings_, state, norm);
  if (!buffers.average.empty()) {
    backend_.moving_average(buffers.average, buffers.masters, average_decay(), norm);
  }
  GradientNorm result;
  static_assert(sizeof result % 4 == 0);
  backend_.download(&result, norm_.view(DType::i32, 1, sizeof result / 4));
  updates_ += result.finite != 0 ? 1 : 0;
  return result;
}

}  // namespace tandem
