// The rules of a run, as pure functions of its settings, counters and clock: how its state follows from a step, a
// validation and a rollback; when it pauses between steps, what is due then, and when it ends.
#pragma once

#include <optional>
#include <string>

#include "backend/operands.h"
#include "store/checkpoint.h"
#include "train/config.h"

namespace tandem::train {

// ---- counting

void count_step(store::CheckpointState& state, const data::TrainStep& step, const backend::UpdateState& update);

// `metrics` were measured at the state's step; `metric` decides which step is best.
void count_validation(store::CheckpointState& state, const std::map<std::string, double>& metrics,
                      store::Metric metric);

// The state after going back to `former` with a lower learning rate, because steps of `failed` were not finite.
store::CheckpointState rolled_back(const store::CheckpointState& failed, store::CheckpointState former,
                                   double learning_rate_factor);

// ---- pauses

// Times in seconds of training, summed over all starts.
struct RunClock {
  double now = 0;
  double validated = 0;  // when the last validation ended
  double saved = 0;      // when the last checkpoint was written
};

// Whether a pause is due after `given` steps, which end at epoch `epochs`; the same on all ranks.
bool pause_due(const TrainConfig& config, const store::CheckpointState& state, int64_t given, double epochs);

// Whether a time limit is over; the clocks of ranks differ.
bool time_for_pause(const TrainConfig& config, const RunClock& clock);

// Called in a pause, with a clock on which the ranks have agreed.
bool validation_due(const ValidationConfig& when, const store::CheckpointState& state, const RunClock& clock);
bool checkpoint_due(const CheckpointConfig& when, const store::CheckpointState& state, int64_t saved_step,
                    const RunClock& clock);

// Why the run is over, in one line; nothing if it is not.
std::optional<std::string> end_reached(const StopConfig& stop, const store::CheckpointState& state);

// Share of the run that is done, by the limit that comes first: 0 to 1.
double share_done(const StopConfig& stop, const store::CheckpointState& state);

// Estimated at the pace so far; -1 if that is unknown.
double seconds_left(const StopConfig& stop, const store::CheckpointState& state);

}  // namespace tandem::train
