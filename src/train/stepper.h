// Gives optimizer steps to the backend and brings their results back, in order.
//
// Where the backend likes a fixed shape, a step is recorded once at a fixed capacity and run again and again, and the
// next steps are given while the first are still under way. Elsewhere a step works on its true counts and is done when
// give() returns.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "backend/queue.h"
#include "data/batcher.h"
#include "optim/adam.h"
#include "train/batch_layout.h"
#include "train/model_state.h"
#include "train/summed_update.h"

namespace tandem {

// Moments of a step by the backend's own clock, nanoseconds.
struct StepClock {
  uint64_t begin = 0;
  uint64_t joining = 0, joined = 0;  // waiting for the other ranks' gradients
  uint64_t sharing = 0;              // then for their weights, where the optimizer is sharded
  uint64_t end = 0;

  double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
  double communication_seconds() const {  // exposed: the backend did nothing else
    return sharing == 0 ? 0 : static_cast<double>((joined - joining) + (end - sharing)) * 1e-9;
  }
};

struct StepResult {
  LossTotals totals;  // over all ranks
  double pause = 0;   // not 0: a rank wants a pause (StepState::pause)
  UpdateState update;
  StepClock clock;
};

class Stepper {
 public:
  // layouts: ascending, each step's rounds fit the last one; empty where the backend works on true counts. team: where
  // several ranks work on each step, or its gradients are summed in f64; then the layouts are for a team. All must
  // outlive the stepper.
  Stepper(Backend& backend, const Transformer& model, ModelState& weights, Adam& adam, float smoothing,
          std::vector<BatchLayout> layouts, TeamUpdate* team = nullptr);

  // Takes the memory that steps need, so that none is taken later.
  void reserve(size_t arena_bytes) { arena_.reserve(arena_bytes); }

  // state: seed, step, loss_scale and learning_rate are read; the rounds' first tokens are filled in here.
  // `recorded` false: op by op, which gives the same bits.
  void give(const TrainStep& step, StepState state, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  StepResult take();  // of the oldest step given; waits for it

  // Rows of both sides that this rank works through for a step, those without a token counted.
  int64_t rows_of(const TrainStep& step) const;

  // Bytes that this rank sends and receives for a step.
  Traffic planned_traffic(const TrainStep& step) const;

  void set_updates(int64_t updates);  // how many updates were done before

 private:
  // How many rows the step's tokens take on each side, and which these are: with a team only.
  struct TeamRows {
    View source_ids, target_ids;
    int64_t source() const { return source_ids.cols; }
    int64_t target() const { return target_ids.cols; }
  };

  // The ops of a step: begin, then rounds, then the update.
  void begin(const TeamRows& rows);
  void round(const Batch& batch, bool first, bool last);  // the first writes the gradients, the others add to them
  void update(const TeamRows& rows, const StepState* state);

  // The smallest that holds the round.
  std::vector<BatchLayout>::const_iterator layout_of(const HostBatch& batch) const;
  void give_true_counts(const TrainStep& step, StepState& state);
  void give_fixed_shape(const TrainStep& step, StepState& state, bool recorded);
  struct Recordable {
    bool warm = false;  // was run once
    std::unique_ptr<Recording> recording;
  };
  void run(Recordable& work, bool recorded, const std::function<void()>& body);
  StepResult* result() const { return static_cast<StepResult*>(results_->block()); }

  // What is recorded of one shape.
  struct Recordings {
    Recordable whole;                // begin, round, update
    Recordable first, middle, last;  // of several rounds
  };

  Backend& backend_;
  const Transformer& model_;
  ModelState& weights_;
  Adam& adam_;
  float smoothing_;
  std::vector<BatchLayout> layouts_;
  TeamUpdate* team_;
  Arena arena_;
  Buffer state_;                // StepState, for true counts
  std::unique_ptr<Feed> feed_;  // the batch's block, for a fixed shape
  std::unique_ptr<Outbox> results_;
  std::map<std::array<int64_t, 3>, Recordings> recordings_;  // by layout and numbers of rows
};

// Bytes that the activations of one round of this capacity take, without taking any.
size_t planned_arena_bytes(const Backend& backend, const ModelConfig& model, DType compute, const BatchLayout& layout);

}  // namespace tandem
