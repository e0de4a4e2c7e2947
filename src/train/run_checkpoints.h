// A run's checkpoints, which all of its ranks write and read together, and its table of algorithms. Every function is
// called by all ranks.
#pragma once

#include <filesystem>
#include <optional>

#include "data/prepared.h"
#include "store/checkpoint.h"
#include "train/group_run.h"
#include "train/learner.h"

namespace tandem::train {

class RunCheckpoints {
 public:
  // All arguments must outlive this object.
  RunCheckpoints(GroupRun& run, const data::Prepared& data, const TrainConfig& config, Learner& learner)
      : run_(run), data_(data), config_(config), learner_(learner) {}

  // Gives the learner fresh weights, or those of config.init; returns the initial state.
  store::CheckpointState begin_fresh();

  // Writes the learner's state on the ranks that keep checkpoints, and removes old checkpoints.
  void save(store::CheckpointState state);

  struct Loaded {
    store::CheckpointState state;
    bool everywhere = true;  // whether every rank's disk has it
  };
  // Loads the newest checkpoint that any rank has on its disk into all of them; nothing if there is none. found: this
  // rank's newest.
  std::optional<Loaded> load(const std::optional<std::filesystem::path>& found);
  // The same when a run is restarted: fails if the checkpoint has other data or another model.
  std::optional<Loaded> resume();

 private:
  void load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared, int64_t updates);

  GroupRun& run_;
  const data::Prepared& data_;
  const TrainConfig& config_;
  Learner& learner_;
};

// The size of the micro-batches in this run's checkpoint, if it has one. Only a preference: an unreadable checkpoint
// means none.
data::MicroBatchCapacity saved_micro_batch(const GroupRun& run);

// Uses the table with which the run began, so that a resumed run gives the same bits. If it has none, or one that does
// not fit, uses the config's and returns it, for the run to keep.
std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config);

}  // namespace tandem::train
