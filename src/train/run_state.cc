#include "train/run_state.h"

namespace tandem::train {

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

}  // namespace tandem::train
