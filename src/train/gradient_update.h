// What happens to a step's gradients: how they become one sum over all ranks, and that sum an update of the weights.
//
// One rank alone updates from the gradients that its backward pass leaves. Several ranks add theirs up first. Another
// way to do it is a class and a line in make_gradient_update().
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

// Moments of a step by the backend's own clock, in nanoseconds.
struct StepClock {
  uint64_t begin = 0;
  uint64_t joining = 0, joined = 0;  // waiting for the other ranks' gradients
  uint64_t sharing = 0;              // then for their weights, if the optimizer is sharded
  uint64_t end = 0;

  double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
  double communication_seconds() const {  // exposed: the backend did nothing else
    return sharing == 0 ? 0 : static_cast<double>((joined - joining) + (end - sharing)) * 1e-9;
  }
};

// What the ranks add up beside the gradients: f64 numbers only.
struct StepSums {
  backend::LossTotals totals;
  double pause = 0;  // not 0: a rank wants a pause (StepInput::pause); one rank alone knows it anyway
};

// Written by a step's ops, in the backend's memory.
struct StepResult {
  StepSums sums;
  backend::UpdateState update;
  StepClock clock;
};

class GradientUpdate {
 public:
  virtual ~GradientUpdate() = default;

  virtual int64_t own_parameters() const = 0;  // how many this rank's optimizer updates

  // ---- the ops of a step, in this order
  virtual void begin(const StepIds& ids) = 0;
  virtual model::Gradients gradients(bool last) = 0;  // for a micro-batch; the first one's are written, not added
  virtual void finish(optim::Optimizer& optimizer, const StepIds& ids, StepInput* input, StepResult* result) = 0;

  // Bytes that this rank sends and receives in one step.
  virtual dist::Traffic planned_traffic(const IdCounts& /*ids*/) const { return {}; }

  // ---- Called by all ranks, between steps.
  // Makes a flat buffer of the model whole on every rank, of which each rank has updated a part.
  virtual void complete(const View& /*flat*/) {}
  // What each rank of `host` keeps of the optimizer's state, by rank; empty if every rank keeps all of it.
  virtual std::vector<dist::ShardPieces> shards(dist::Communicator& /*host*/) const { return {}; }
};

// Elements that buffers shared by `ranks` are padded to a multiple of: whole vectors for every rank.
constexpr int64_t shard_unit(int ranks) { return int64_t{16} * ranks; }

// What gradients travel as: what the config asks for or, if it leaves that open, f64 for f32 on CPUs, else f32.
DType wire_type(const DistConfig& config, const backend::Backend& backend, DType compute);

// weights must be padded to shard_unit(communicator.size()); communicator works where the gradients lie. All must
// outlive the update. whole_parameters: if the optimizer is sharded, its shards end at the ends of parameters.
std::unique_ptr<GradientUpdate> make_gradient_update(backend::Backend& backend, const model::Transformer& model,
                                                     ModelState& weights, dist::Communicator& communicator,
                                                     const TrainConfig& config, bool whole_parameters);

}  // namespace tandem::train
