// Adam, or AdamW if its weight decay is decoupled.
#pragma once

#include "optim/optimizer.h"

namespace tandem::optim {

class Adam final : public Optimizer {
 public:
  Adam(backend::Backend& backend, int64_t count, const backend::UpdateSettings& settings);

  // The moments, f32 [1, count].
  View m() const { return m_.view(DType::f32, 1, count_); }
  View v() const { return v_.view(DType::f32, 1, count_); }

  std::vector<Slot> slots() const override { return {{"m", m()}, {"v", v()}}; }

 private:
  void change_weights(const UpdateBuffers& part, int64_t first, const backend::StepState* state,
                      const backend::UpdateState* update) override;

  int64_t count_;
  Buffer m_, v_;
};

}  // namespace tandem::optim
