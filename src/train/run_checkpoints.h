// The checkpoints of a run, as all of its ranks write and read them together. Every function is called by all ranks.
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

  // Writes what the learner holds, on the ranks that keep checkpoints; removes those that need not be kept.
  void save(store::CheckpointState state);

  struct Loaded {
    store::CheckpointState state;
    bool everywhere = true;  // no rank's disk lacks it
  };
  // Brings the newest checkpoint that any rank has on its disk to all of them; nothing if there is none. found: this
  // rank's newest.
  std::optional<Loaded> load(const std::optional<std::filesystem::path>& found);

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

}  // namespace tandem::train
