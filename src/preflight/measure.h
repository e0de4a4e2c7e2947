// All measurements of a preflight, made by all ranks together.
#pragma once

#include "data/prepared.h"
#include "dist/process_group.h"
#include "preflight/measurements.h"
#include "train/config.h"

namespace tandem {

// config as train's would be, made whole. The same on all ranks; about half a minute.
Measurements measure_all(ProcessGroup& group, const TrainConfig& config, const Prepared& data);

}  // namespace tandem
