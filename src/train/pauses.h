// When a run pauses between two steps and what is due then, and when it ends: functions of its settings, of what was
// counted and of its clock.
#pragma once

#include <optional>
#include <string>

#include "store/checkpoint.h"
#include "train/config.h"

namespace tandem::train {

// Seconds of training, over all starts.
struct RunClock {
  double now = 0;
  double validated = 0;  // when the last validation ended
  double saved = 0;      // when the last checkpoint was written
};

// All ranks find the same: something is due when `given` steps are done, with which `epochs` are over.
bool pause_due(const TrainConfig& config, const store::CheckpointState& state, int64_t given, double epochs);

// A limit of time is over; each rank's clock says something else.
bool time_for_pause(const TrainConfig& config, const RunClock& clock);

// In a pause, by a clock on which the ranks have agreed.
bool validation_due(const ValidationConfig& when, const store::CheckpointState& state, const RunClock& clock);
bool checkpoint_due(const CheckpointConfig& when, const store::CheckpointState& state, int64_t saved_step,
                    const RunClock& clock);

// Why the run is over, in one line; nothing while it is not.
std::optional<std::string> end_reached(const StopConfig& stop, const store::CheckpointState& state);

// How much of the run is done, by the limit that comes first: 0 to 1.
double share_done(const StopConfig& stop, const store::CheckpointState& state);

// At the pace so far; -1 if nothing is known of it.
double seconds_left(const StopConfig& stop, const store::CheckpointState& state);

}  // namespace tandem::train
