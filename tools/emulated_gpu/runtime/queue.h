// Streams that do at once what they are given, or record it.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace emulated {

// Does the work, or keeps it for the graph that the stream is recorded into. What the work needs it must own.
void give(cudaStream_t stream, std::function<void()> work);
// Between the beginning and the end of a recording its thread may neither wait nor allocate.
bool is_recording();

}  // namespace emulated
