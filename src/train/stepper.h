// Gives optimizer steps to the backend and brings their results back, in order.
//
// On a device that replays recorded work, the next steps are given while the first are still under way; on any other a
// step is done when give() returns.
#pragma once

#include "train/batch_work.h"
#include "train/gradient_update.h"
#include "train/model_state.h"

namespace tandem::train {

class Stepper {
 public:
  // layouts: in rising order; each micro-batch must fit the last one. Unused if the device does not replay. All must
  // outlive the stepper.
  Stepper(backend::Backend& backend, const model::Transformer& model, const ModelState& weights,
          optim::Optimizer& optimizer, GradientUpdate& update, float smoothing, std::vector<BatchLayout> layouts);

  // Takes the memory that steps need, so that none is taken later.
  void reserve(size_t arena_bytes) { arena_.reserve(arena_bytes); }

  // The first tokens of `input.state` are filled in here. `recorded` false: op by op, which gives the same bits.
  void give(const data::TrainStep& step, StepInput input, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  // So many steps should be under way that the device never waits for the host.
  size_t usual_under_way() const { return work_.replays() ? 3 : 0; }
  StepResult take();  // of the oldest step given; waits for it

  // Rows of both sides that this rank works through for a step, those without a token counted.
  int64_t rows_of(const data::TrainStep& step) const;
  // Bytes that this rank sends and receives for a step.
  dist::Traffic planned_traffic(const data::TrainStep& step) const {
    return update_.planned_traffic(work_.ids_of(step));
  }

  void set_updates(int64_t updates);  // how many updates were done before

 private:
  StepResult* result() const { return static_cast<StepResult*>(results_->block()); }
  void begin(const BatchWork::Given& given);
  void add_gradients(const model::Batch& batch, bool first, bool last);

  backend::Backend& backend_;
  const model::Transformer& model_;
  const ModelState& weights_;
  optim::Optimizer& optimizer_;
  GradientUpdate& update_;
  float smoothing_;
  Arena arena_;
  BatchWork work_;
  std::unique_ptr<backend::Outbox> results_;
};

// Bytes that the activations of one micro-batch of this capacity take, without taking any.
size_t planned_arena_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                           const BatchLayout& layout);

}  // namespace tandem::train
