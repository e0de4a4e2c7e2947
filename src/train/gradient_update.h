// Turns a step's gradients into one sum over all ranks, and that sum into an update of the weights.
//
// A rank alone updates from the gradients of its backward pass; several ranks add theirs up first. Another way to
// update needs a class and a line in make_gradient_update().
#pragma once

#include <memory>

#include "dist/buckets.h"
#include "dist/communicator.h"
#include "model/transformer.h"
#include "optim/optimizer.h"
#include "train/batch_work.h"
#include "train/config.h"
#include "train/model_state.h"

namespace tandem::train {

// Times within a step by the backend's own clock, in nanoseconds.
struct StepClock {
  uint64_t begin = 0;
  uint64_t joining = 0, joined = 0;  // begin and end of waiting for the other ranks' gradients
  uint64_t sharing = 0;              // begin of waiting for their weights, if the optimizer is sharded
  uint64_t end = 0;

  double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
  double communication_seconds() const {  // exposed: the backend did nothing else
    return sharing == 0 ? 0 : static_cast<double>((joined - joining) + (end - sharing)) * 1e-9;
  }
};

// Sums over the ranks besides the gradients: f64 numbers only.
struct StepSums {
  backend::LossTotals totals;
  double pause = 0;  // not 0: a rank wants to pause (StepInput::pause); if there is one rank, it knows that anyway
};

// Written by a step's ops, to the backend's memory.
struct StepResult {
  StepSums sums;
  backend::UpdateState update;
  StepClock clock;
};

class GradientUpdate {
 public:
  virtual ~GradientUpdate() = default;

  virtual int64_t own_parameters() const = 0;  // number of parameters that this rank's optimizer updates

  // ---- the ops of a step, in this order
  virtual void begin(const StepIds& ids) = 0;
  virtual model::Gradients gradients(bool last) = 0;  // for a micro-batch; the first one's are written, not added
  virtual void finish(optim::Optimizer& optimizer, const StepIds& ids, StepInput* input, StepResult* result) = 0;

  // Bytes that this rank sends and receives in one step.
  virtual dist::Traffic planned_traffic(const IdCounts& /*ids*/) const { return {}; }

  // ---- between steps, called by all ranks
  // Completes a flat buffer of the model, of which each rank has updated a part, on every rank.
  virtual void complete(const View& /*flat*/) {}
  // The part of the optimizer's state that each rank of `host` keeps, by rank; empty if every rank keeps all of it.
  virtual std::vector<dist::ShardPieces> shards(dist::Communicator& /*host*/) const { return {}; }
};

// Buffers shared by `ranks` are padded to a multiple of so many elements: whole vectors for every rank.
constexpr int64_t shard_unit(int ranks) { return int64_t{16} * ranks; }

// Type in which gradients are sent: the config's or, if that is "auto", f64 for f32 on CPUs, else f32.
DType wire_type(const DistConfig& config, const backend::Backend& backend, DType compute);

// weights must be padded to shard_unit(communicator.size()); communicator works where the gradients lie. All must
// outlive the update. whole_parameters: shards of the optimizer's state end at the ends of parameters.
std::unique_ptr<GradientUpdate> make_gradient_update(backend::Backend& backend, const model::Transformer& model,
                                                     ModelState& weights, dist::Communicator& communicator,
                                                     const TrainConfig& config, bool whole_parameters);

}  // namespace tandem::train
