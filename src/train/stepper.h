// Gives optimizer steps to the backend and brings their results back, in order.
//
// Where the backend likes a fixed shape, a step is recorded once at a fixed capacity and run again and again, and the
// next steps are given while the first are still under way. Elsewhere a step works on its true counts and is done when
// give() returns.
#pragma once

#include <optional>
#include <vector>

#include "backend/queue.h"
#include "data/batcher.h"
#include "optim/adam.h"
#include "train/batch_layout.h"
#include "train/model_state.h"

namespace tandem {

struct StepResult {
  LossTotals totals;
  UpdateState update;
};

class Stepper {
 public:
  // layouts: ascending, each step's rounds fit the last one; empty where the backend works on true counts. All must
  // outlive the stepper.
  Stepper(Backend& backend, const Transformer& model, ModelState& weights, Adam& adam, float smoothing,
          std::vector<BatchLayout> layouts);

  // Takes the memory that steps need, so that none is taken later.
  void reserve(size_t arena_bytes) { arena_.reserve(arena_bytes); }

  // state: seed, step, loss_scale and learning_rate are read; the rounds' first tokens are filled in here.
  // `recorded` false: op by op, which gives the same bits.
  void give(const TrainStep& step, StepState state, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  StepResult take();  // of the oldest step given; waits for it

  void set_updates(int64_t updates);  // how many updates were done before

 private:
  // The ops of a step: sums to zero, then rounds, then the update. The first round overwrites the gradients.
  void begin();
  void round(const Batch& batch, bool first);
  void update(const StepState* state);

  void give_true_counts(const TrainStep& step, StepState& state);

  struct Recordings {
    std::unique_ptr<Recording> whole;  // begin, first round, update
    std::unique_ptr<Recording> first, next;
  };

  Backend& backend_;
  const Transformer& model_;
  ModelState& weights_;
  Adam& adam_;
  float smoothing_;
  std::vector<BatchLayout> layouts_;
  Arena arena_;
  Buffer state_;                // StepState, for true counts
  std::unique_ptr<Feed> feed_;  // the batch's block, for a fixed shape
  std::unique_ptr<Outbox> results_;
  std::vector<Recordings> recordings_;  // of each layout
  std::unique_ptr<Recording> begin_, update_;
};

// Bytes that the activations of one round of this capacity take, without taking any.
size_t planned_arena_bytes(const Backend& backend, const ModelConfig& model, DType compute, const BatchLayout& layout);

}  // namespace tandem
