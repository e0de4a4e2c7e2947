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

AdamBuffers AdamBuffers::slice(int64_t begin, int64_t count) const {
  const auto part = [&](const View& view) { return view.empty() ? view : view.slice_cols(begin, count); };
  return {part(masters), part(compute), part(average), part(gradients)};
}

void Adam::step(const AdamBuffers& buffers, const StepState* state, UpdateState* update) {
  require(buffers.masters.size() == size_ && buffers.gradients.size() == size_,
          "an optimizer for {} parameters was given {} weights and {} gradients", size_, buffers.masters.size(),
          buffers.gradients.size());
  backend_.run(op::GradientNorm{.update = update, .gradients = buffers.gradients, .settings = settings_});
  apply(buffers, 0, state, update);
}

void Adam::apply(const AdamBuffers& part, int64_t first, const StepState* state, const UpdateState* update) {
  const int64_t count = part.masters.size();
  backend_.run(op::Adam{.masters = part.masters,
                        .m = m().slice_cols(first, count),
                        .v = v().slice_cols(first, count),
                        .compute = part.compute,
                        .gradients = part.gradients,
                        .settings = settings_.adam,
                        .state = state,
                        .update = update});
  if (!part.average.empty()) {
    backend_.run(op::MovingAverage{.average = part.average, .masters = part.masters, .update = update});
  }
}

}  // namespace tandem
