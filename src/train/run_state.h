// The rules of a run, as pure functions of its settings, of what was counted and of its clock: how its state follows
// from a step, a validation and a return to a former state; when it pauses between two steps, what is due then, and
// when it ends.
#pragma once

#include <optional>
#include <string>

#include "backend/operands.h"
#include "store/checkpoint.h"
#include "train/config.h"

namespace tandem::train {

// ---- what is counted

void count_step(store::CheckpointState& state, const data::TrainStep& step, const backend::UpdateState& update);

// `metrics` were measured at the state's step; `metric` is what the best step is known by.
void count_validation(store::CheckpointState& state, const std::map<std::string, double>& metrics,
                      store::Metric metric);

// The run goes on from `former`, with a lower learning rate, after steps of `failed` were not finite.
store::CheckpointState rolled_back(const store::CheckpointState& failed, store::CheckpointState former,
                                   double learning_rate_factor);

// ---- pauses

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
