// What a user should look at before the run: devices, links, clocks and disks that are not like the others, or too
// small.
#pragma once

#include <string>
#include <vector>

#include "preflight/measurements.h"

namespace tandem::preflight {

std::vector<std::string> warnings_of(const Measurements& measurements);

// Which disks cannot hold the checkpoints; "" where all can.
std::string disk_problem(const Measurements& measurements);

}  // namespace tandem::preflight
