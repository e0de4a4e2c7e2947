#include "optim/adam.h"

namespace tandem::optim {

Adam::Adam(backend::Backend& backend, int64_t count, const backend::UpdateSettings& settings)
    : Optimizer(backend, settings),
      count_(count),
      m_(backend.allocate(static_cast<size_t>(count) * sizeof(float))),
      v_(backend.allocate(static_cast<size_t>(count) * sizeof(float))) {
  backend_.fill_zero(m());
  backend_.fill_zero(v());
}

void Adam::change_weights(const UpdateBuffers& part, int64_t first, const backend::StepState* state,
                          const backend::UpdateState* update) {
  const int64_t count = part.masters.size();
  backend_.run(backend::op::Adam{.masters = part.masters,
                                 .m = m().slice_cols(first, count),
                                 .v = v().slice_cols(first, count),
                                 .compute = part.compute,
                                 .gradients = part.gradients,
                                 .settings = settings_.adam,
                                 .state = state,
                                 .update = update});
}

}  // namespace tandem::optim
