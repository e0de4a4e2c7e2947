// Adam (or AdamW) on the model's flat buffers: owns both moments and the count of updates.
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
};

class Adam {
 public:
  // The backend must outlive it. The moments begin at zero. max_norm 0: no clipping.
  Adam(Backend& backend, int64_t size, const AdamSettings& settings, float max_norm, float average_decay = 0,
       DType master = DType::f32);

  // Writes the learning rate and the bias corrections of the next update into a host state, before it goes to the
  // backend's memory.
  void prepare(StepState& state, double learning_rate) const;

  // One update with the prepared state, which lies in the backend's memory. Returns the gradient's norm, and so waits
  // for the device. Where it is not finite nothing was changed and no update is counted.
  GradientNorm step(const AdamBuffers& buffers, const StepState* state);

  // For checkpoints: all of the optimizer's state.
  View m() const { return m_.view(master_, 1, size_); }
  View v() const { return v_.view(master_, 1, size_); }
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  // The average follows faster at the beginning, so that it forgets the initial weights: (1 + t) / (10 + t) up to the
  // decay asked for.
  float average_decay() const;

  Backend& backend_;
  int64_t size_;
  AdamSettings settings_;
  float max_norm_, average_decay_;
  DType master_;
  Buffer m_, v_, norm_;
  int64_t updates_ = 0;
};

}  // namespace tandem
