// Gives optimizer steps to the backend and brings their results back, in order.
//
// On a device that replays recorded work, the next steps are given while the first are still under way; on any other a
// step is done when give() returns.
#pragma once

#include "train/batch_work.h"
#include "train/gradient_update.h"
#include "train/model_state.h"

namespace tandem {

class Stepper {
 public:
  // layouts: in rising order; each micro-batch must fit the last one. Unused if the device does not replay. All must
  // outlive the stepper.
  Stepper(Backend& backend, const Transformer& model, const ModelState& weights, Optimizer& optimizer,
          GradientUpdate& update, float smoothing, std::vector<BatchLayout> layouts);

  // Takes the memory that steps need, so that none is taken later.
  void reserve(size_t arena_bytes) { arena_.reserve(arena_bytes); }

  // The first tokens of `input.state` are filled in here. `recorded` false: op by op, which gives the same bits.
  void give(const TrainStep& step, StepInput input, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  // So many steps should be under way that the device never waits for the host.
  size_t usual_under_way() const { return work_.replays() ? 3 : 0; }
  StepResult take();  // of the oldest step given; waits for it

  // Rows of both sides that this rank works through for a step, those without a token counted.
  int64_t rows_of(const TrainStep& step) const;
  // Bytes that this rank sends and receives for a step.
  Traffic planned_traffic(const TrainStep& step) const { return update_.planned_traffic(work_.ids_of(step)); }

  void set_updates(int64_t updates);  // how many updates were done before

 private:
  StepResult* result() const { return static_cast<StepResult*>(results_->block()); }
  void begin(const BatchWork::Given& given);
  void add_gradients(const Batch& batch, bool first, bool last);

  Backend& backend_;
  const Transformer& model_;
  const ModelState& weights_;
  Optimizer& optimizer_;
  GradientUpdate& update_;
  float smoothing_;
  Arena arena_;
  BatchWork work_;
  std::unique_ptr<Outbox> results_;
};

// Bytes that the activations of one micro-batch of this capacity take, without taking any.
size_t planned_arena_bytes(const Backend& backend, const ModelConfig& model, DType compute, const BatchLayout& layout);

}  // namespace tandem
