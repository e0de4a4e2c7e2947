// A run's checkpoints, which all of its ranks write and read together, and its table of algorithms. Every function is
// called by all ranks.
#pragma once

#include <filesystem>
#include <optional>

#include "data/prepared.h"
#include "store/checkpoint.h"
#include "train/background_write.h"
#include "train/group_run.h"
#include "train/learner.h"

namespace tandem::train {

class RunCheckpoints {
 public:
  // All arguments must outlive this object.
  RunCheckpoints(GroupRun& run, const data::Prepared& data, const TrainConfig& config, Learner& learner)
      : run_(run),
        data_(data),
        config_(config),
        learner_(learner),
        tensors_(learner.host_tensors(run.keeps_checkpoints() ? HostTensors::save : HostTensors::save_not)),
        writing_([&run] { return !store::list_checkpoints(run.directory().root()).empty(); }) {}

  // Gives the learner fresh weights, or those of config.init; returns the initial state.
  store::CheckpointState begin_fresh();

  // Copies the learner's state aside. On ranks that keep checkpoints a thread calls `before`, writes the copy and
  // removes old checkpoints, while training goes on; what it began before is finished first. If it fails while an older
  // checkpoint is there, it tries again.
  void save(store::CheckpointState state, std::function<void()> before);
  // Waits until all is written, on all ranks; fails if that fails.
  void finish();
  // What went wrong since the last call, in a sentence, or nothing. Fails if no checkpoint could be written.
  std::string take_problem() { return writing_.take_problem(); }

  struct Loaded {
    store::CheckpointState state;
    bool everywhere = true;  // whether every rank's disk has it
  };
  // Loads the newest checkpoint that any rank has on its disk into all of them; nothing if there is none.
  std::optional<Loaded> load_newest();
  // The same when a run is restarted: fails if the checkpoint has other data or another model.
  std::optional<Loaded> resume();

 private:
  void write(const store::Checkpoint& checkpoint) const;
  std::optional<Loaded> load(const std::optional<std::filesystem::path>& found);  // found: this rank's newest
  void load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared, int64_t updates);

  GroupRun& run_;
  const data::Prepared& data_;
  const TrainConfig& config_;
  Learner& learner_;
  HostTensors tensors_;      // what is written
  BackgroundWrite writing_;  // after what it uses
};

// The size of the micro-batches in this run's checkpoint, if it has one. Only a preference: an unreadable checkpoint
// means none.
data::MicroBatchCapacity saved_micro_batch(const GroupRun& run);

// Uses the table with which the run began, so that a resumed run gives the same bits. If it has none, or one that does
// not fit, uses the config's and returns it, for the run to keep.
std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config);

}  // namespace tandem::train
