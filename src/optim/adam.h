// Adam (or AdamW) on the model's flat buffers: owns both moments.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace tandem {

// What an update works on: flat buffers [1, size] in the backend's memory, owned by the caller.
struct AdamBuffers {
  View masters;
  View compute;    // the bf16 copy to refresh, or empty
  View average;    // moving average of the masters, or empty; begins as a copy of them
  View gradients;  // read only; whoever adds to them zeroes them

  AdamBuffers slice(int64_t begin, int64_t count) const;
};

class Adam {
 public:
  // The backend must outlive it. The moments begin at zero.
  Adam(Backend& backend, int64_t size, const UpdateSettings& settings, DType master = DType::f32);

  const UpdateSettings& settings() const { return settings_; }

  // Gives one update to the backend, with the state's learning rate; `state` and `update` lie in the backend's memory.
  // Where the gradient is not finite nothing changes and no update is counted.
  void step(const AdamBuffers& buffers, const StepState* state, UpdateState* update);

  // The same where *update is already known, for a part of the model: the moments from element `first` on.
  void apply(const AdamBuffers& part, int64_t first, const StepState* state, const UpdateState* update);

  // For checkpoints: all of the optimizer's state but the count of updates, which lies in UpdateState.
  View m() const { return m_.view(master_, 1, size_); }
  View v() const { return v_.view(master_, 1, size_); }

 private:
  Backend& backend_;
  int64_t size_;
  UpdateSettings settings_;
  DType master_;
  Buffer m_, v_;
};

}  // namespace tandem
