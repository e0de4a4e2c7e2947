#include "train/run_state.h"

#include <algorithm>

#include "core/error.h"

namespace tandem::train {

namespace {

bool every(int64_t steps, int64_t step) { return steps > 0 && step % steps == 0; }

bool over(double minutes, double seconds) { return minutes > 0 && seconds >= minutes * 60; }

}  // namespace

void count_step(store::CheckpointState& state, const data::TrainStep& step, const backend::UpdateState& update) {
  ++state.step;
  state.updates = update.updates;
  state.cursor = step.after;
  state.epochs_done = step.epochs_done;
  state.pairs += step.pairs;
  state.source_tokens += step.source_tokens;
  state.target_tokens += step.target_tokens;
  const bool skipped = update.finite == 0;
  state.skipped += skipped ? 1 : 0;
  state.skipped_in_a_row = skipped ? state.skipped_in_a_row + 1 : 0;
}

void count_validation(store::CheckpointState& state, const std::map<std::string, double>& metrics,
                      store::Metric metric) {
  state.metrics = metrics;
  state.metrics_step = state.step;
  ++state.validations;
  const auto score = metrics.find(name_of(metric));
  if (score == metrics.end()) {
    return;
  }
  const bool better = !state.best_score || (store::higher_is_better(metric) ? score->second > *state.best_score
                                                                            : score->second < *state.best_score);
  state.bad_validations = better ? 0 : state.bad_validations + 1;
  if (better) {
    state.best_score = score->second;
    state.best_step = state.step;
  }
}

store::CheckpointState rolled_back(const store::CheckpointState& failed, store::CheckpointState former,
                                   double learning_rate_factor) {
  former.rollbacks = failed.rollbacks + 1;
  former.skipped = failed.skipped;
  former.skipped_in_a_row = 0;
  former.elapsed_seconds = failed.elapsed_seconds;
  former.learning_rate_factor = failed.learning_rate_factor * learning_rate_factor;
  return former;
}

// ---- pauses

bool pause_due(const TrainConfig& config, const store::CheckpointState& state, int64_t given, double epochs) {
  const StopConfig& stop = config.stop;
  return every(config.validation.every_steps, given) || every(config.checkpoint.every_steps, given) ||
         (stop.max_steps > 0 && given >= stop.max_steps) || (stop.max_epochs > 0 && epochs >= stop.max_epochs) ||
         state.skipped_in_a_row >= config.nonfinite.max_skips;
}

bool time_for_pause(const TrainConfig& config, const RunClock& clock) {
  return over(config.stop.max_minutes, clock.now) ||
         over(config.validation.every_minutes, clock.now - clock.validated) ||
         over(config.checkpoint.every_minutes, clock.now - clock.saved);
}

bool validation_due(const ValidationConfig& when, const store::CheckpointState& state, const RunClock& clock) {
  return (every(when.every_steps, state.step) && state.metrics_step != state.step) ||
         over(when.every_minutes, clock.now - clock.validated);
}

bool checkpoint_due(const CheckpointConfig& when, const store::CheckpointState& state, int64_t saved_step,
                    const RunClock& clock) {
  return saved_step != state.step &&
         (every(when.every_steps, state.step) || over(when.every_minutes, clock.now - clock.saved));
}

std::optional<std::string> end_reached(const StopConfig& stop, const store::CheckpointState& state) {
  if (stop.max_steps > 0 && state.step >= stop.max_steps) {
    return fmt::format("all {} steps are done", stop.max_steps);
  }
  if (stop.max_epochs > 0 && state.epochs_done >= stop.max_epochs) {
    return fmt::format("all {:g} epochs are done", stop.max_epochs);
  }
  if (stop.max_minutes > 0 && state.elapsed_seconds >= stop.max_minutes * 60) {
    return fmt::format("{:g} minutes are over", stop.max_minutes);
  }
  if (stop.patience > 0 && state.bad_validations >= stop.patience) {
    return fmt::format("{} validations without a better {} (best at step {})", state.bad_validations,
                       name_of(stop.metric), state.best_step);
  }
  return std::nullopt;
}

double share_done(const StopConfig& stop, const store::CheckpointState& state) {
  double share = 0;
  if (stop.max_steps > 0) {
    share = std::max(share, static_cast<double>(state.step) / static_cast<double>(stop.max_steps));
  }
  if (stop.max_epochs > 0) {
    share = std::max(share, state.epochs_done / stop.max_epochs);
  }
  if (stop.max_minutes > 0) {
    share = std::max(share, state.elapsed_seconds / (stop.max_minutes * 60));
  }
  return std::min(share, 1.0);
}

double seconds_left(const StopConfig& stop, const store::CheckpointState& state) {
  const double share = share_done(stop, state);
  return share > 0 ? state.elapsed_seconds * (1 - share) / share : -1;
}

}  // namespace tandem::train
