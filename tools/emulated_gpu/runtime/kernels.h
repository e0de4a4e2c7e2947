// The program's kernels, as nvcc's code registers them when it starts.
#pragma once

#include <cstddef>

namespace emulated {

// The compute capability that the emulated GPU has: that of the program's PTX.
int architecture();

// How many there are; all are decoded, so that an instruction that is not known shows in kernels that no test runs.
size_t decode_all_kernels();

}  // namespace emulated
