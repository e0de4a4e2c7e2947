// When a run ends.
#pragma once

#include <optional>
#include <string>

#include "store/checkpoint.h"
#include "train/config.h"

namespace tandem {

// Why the run is over, one sentence; nothing while it is not.
std::optional<std::string> end_reached(const StopConfig& stop, const CheckpointState& state);

// How much of the run is done, by the limit that comes first: 0 to 1.
double share_done(const StopConfig& stop, const CheckpointState& state);

}  // namespace tandem
