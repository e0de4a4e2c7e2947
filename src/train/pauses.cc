#include "train/pauses.h"

#include <algorithm>

#include "core/error.h"

namespace tandem {

std::optional<std::string> end_reached(const StopConfig& stop, const CheckpointState& state) {
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

double share_done(const StopConfig& stop, const CheckpointState& state) {
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

}  // namespace tandem
