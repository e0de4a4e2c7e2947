// All measurements of a preflight, made by all ranks together.
#pragma once

#include "data/prepared.h"
#include "dist/process_group.h"
#include "preflight/measurements.h"
#include "train/config.h"

namespace tandem::preflight {

// config as train's would be, made whole. The same on all ranks; about half a minute.
Measurements measure_all(dist::ProcessGroup& group, const train::TrainConfig& config, const data::Prepared& data);

}  // namespace tandem::preflight
