#pragma once

#include <cstddef>

#include "emulated_gpu/ptx/warp.h"

namespace emulated {

// Runs all blocks of a launch, with this many bytes of dynamic shared memory, one after the other. From one launch to
// the next the order of blocks, and of warps between two barriers, is turned round, so that what depends on it shows
// when the same work is done twice.
void run_grid(const LaunchedKernel& launch, size_t dynamic_shared);

}  // namespace emulated
