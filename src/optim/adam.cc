#include "optim/adam.h"

#include "core/error.h"

namespace tandem {

Adam::Adam(Backend& backend, int64_t size, const UpdateSettings& settings, DType master)
    : backend_(backend),
      size_(size),
      settings_(settings),
      master_(master),
      m_(backend.allocate(static_cast<size_t>(size) * size_of(master))),
      v_(backend.allocate(static_cast<size_t>(size) * size_of(master))) {
  backend_.fill_zero(m());
  backend_.fill_zero(v());
}

void Adam::step(const AdamBuffers& buffers, const StepState* state, UpdateState* update) {
  require(buffers.masters.size() == size_ && buffers.gradients.size() == size_,
          "an optimizer for {} parameters was given {} weights and {} gradients", size_, buffers.masters.size(),
          buffers.gradients.size());
  backend_.gradient_norm(update, buffers.gradients, settings_);
  backend_.adam(buffers.masters, m(), v(), buffers.compute, buffers.gradients, settings_.adam, state, update);
  if (!buffers.average.empty()) {
    backend_.moving_average(buffers.average, buffers.masters, update);
  }
}

}  // namespace tandem
