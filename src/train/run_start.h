// What a run begins with: the table of algorithms, the weights and state, the record "setup".
#pragma once

#include <optional>
#include <string>

#include "data/prepared.h"
#include "observe/metrics.h"
#include "train/group_run.h"
#include "train/learner.h"
#include "train/run_checkpoints.h"

namespace tandem::train {

// Uses the table that the run began with, so that a resumed run computes the same bits. If it has none, or one that is
// of no use here, uses the config's, which the run shall keep and which is returned.
std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config);

// Fresh weights, or those of config.init, in the learner; gives the state to begin with.
store::CheckpointState begin_fresh(Learner& learner, const data::Prepared& data, const TrainConfig& config);

// Brings the newest checkpoint of the run into the learner. Nothing if there is none; fails if it is of other data or
// another model.
std::optional<RunCheckpoints::Loaded> resume(RunCheckpoints& checkpoints, const Learner& learner, const GroupRun& run,
                                             const data::Prepared& data, const TrainConfig& config);

// Writes what those who read the run later need: settings, statistics of the data, algorithms.
void write_settings(const GroupRun& run, const data::Prepared& data, const std::string& algorithms);

observe::Record setup_record(GroupRun& run, Learner& learner, backend::Backend& backend, const TrainConfig& config,
                             const store::CheckpointState& state);

}  // namespace tandem::train
