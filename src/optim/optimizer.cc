#include "optim/optimizer.h"

#include "core/error.h"
#include "optim/adam.h"

namespace tandem::optim {

UpdateBuffers UpdateBuffers::slice(int64_t begin, int64_t count) const {
  const auto part = [&](const View& view) { return view.empty() ? view : view.slice_cols(begin, count); };
  return {part(masters), part(compute), part(average), part(gradients)};
}

void Optimizer::update(const UpdateBuffers& part, int64_t first, const backend::StepState* state,
                       const backend::UpdateState* update) {
  require(part.masters.size() == part.gradients.size(), "an update has {} weights but {} gradients",
          part.masters.size(), part.gradients.size());
  change_weights(part, first, state, update);
  if (!part.average.empty()) {
    backend_.run(backend::op::MovingAverage{.average = part.average, .masters = part.masters, .update = update});
  }
}

bool needs_whole_parameters(OptimizerName /*name*/) { return false; }

std::unique_ptr<Optimizer> make_optimizer(OptimizerName name, backend::Backend& backend, int64_t count,
                                          const backend::UpdateSettings& settings) {
  backend::UpdateSettings own = settings;
  own.adam.decoupled = name == OptimizerName::adamw;
  return std::make_unique<Adam>(backend, count, own);
}

}  // namespace tandem::optim
