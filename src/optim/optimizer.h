// Optimizers turn gradients into new weights and keep their state from step to step.
//
// An optimizer is a class derived from Optimizer in a file of its own and a name in make_optimizer(). Its state is
// saved, copied and sharded slot by slot.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace tandem::optim {

// The part of the model that one update works on: flat buffers [1, n] in the backend's memory, owned by the caller.
struct UpdateBuffers {
  View masters;
  View compute;    // the bf16 copy to refresh, or empty
  View average;    // moving average of the masters, or empty; begins as a copy of them
  View gradients;  // read only; whoever adds to them zeroes them

  UpdateBuffers slice(int64_t begin, int64_t count) const;
};

// One of the f32 buffers that make up an optimizer's state, in the backend's memory.
struct Slot {
  enum class Extent : uint8_t {
    parameters,  // [1, n]: a number for each parameter that this rank updates
    shared,      // any shape, the same numbers on every rank
    own,         // any shape, different numbers on every rank
  };
  std::string name;  // also used in files
  View view;
  Extent extent = Extent::parameters;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // All of its state except the count of updates, which lies in UpdateState. It begins at zero.
  virtual std::vector<Slot> slots() const = 0;

  // Computes *update from the sums of squares of the gradient's parts, f64 [1, n], added in this order.
  void prepare(backend::UpdateState* update, const View& sums) {
    backend_.run(backend::op::PrepareUpdate{.update = update, .sums = sums, .settings = settings_});
  }
  // Updates the part of the model that begins at element `first` of the slots. `state`, whose learning rate is used,
  // and `update` lie in the backend's memory. If the gradient is not finite, nothing changes.
  void update(const UpdateBuffers& part, int64_t first, const backend::StepState* state,
              const backend::UpdateState* update);

 protected:
  // The backend must outlive the optimizer.
  Optimizer(backend::Backend& backend, const backend::UpdateSettings& settings)
      : backend_(backend), settings_(settings) {}

  virtual void change_weights(const UpdateBuffers& part, int64_t first, const backend::StepState* state,
                              const backend::UpdateState* update) = 0;

  backend::Backend& backend_;
  const backend::UpdateSettings settings_;
};

enum class OptimizerName : uint8_t { adam, adamw };

// Whether a rank must hold its parameters whole, because the optimizer's arithmetic is not element by element.
bool needs_whole_parameters(OptimizerName name);

// count: number of parameters that this rank updates.
std::unique_ptr<Optimizer> make_optimizer(OptimizerName name, backend::Backend& backend, int64_t count,
                                          const backend::UpdateSettings& settings);

}  // namespace tandem::optim
