// What a run goes on from: its checkpoints, as all of its ranks write and read them together, and its table of
// algorithms. Every function is called by all ranks.
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
  // All must outlive this.
  RunCheckpoints(GroupRun& run, const data::Prepared& data, const TrainConfig& config, Learner& learner)
      : run_(run), data_(data), config_(config), learner_(learner) {}

  // Fresh weights, or those of config.init, in the learner; gives the state to begin with.
  store::CheckpointState begin_fresh();

  // Writes what the learner holds, on the ranks that keep checkpoints; removes those that need not be kept.
  void save(store::CheckpointState state);

  struct Loaded {
    store::CheckpointState state;
    bool everywhere = true;  // no rank's disk lacks it
  };
  // Brings the newest checkpoint that any rank has on its disk to all of them; nothing if there is none. found: this
  // rank's newest.
  std::optional<Loaded> load(const std::optional<std::filesystem::path>& found);
  // The same for a run that is started again: fails if the checkpoint is of other data or another model.
  std::optional<Loaded> resume();

 private:
  void load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared, int64_t updates);

  GroupRun& run_;
  const data::Prepared& data_;
  const TrainConfig& config_;
  Learner& learner_;
};

// The size that this run's micro-batches had, if it has a checkpoint. It is a preference, so a checkpoint that cannot
// be read means none.
data::MicroBatchCapacity saved_micro_batch(const GroupRun& run);

// Uses the table that the run began with, so that a resumed run computes the same bits. If it has none, or one that is
// of no use here, uses the config's, which the run shall keep and which is returned.
std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config);

}  // namespace tandem::train
