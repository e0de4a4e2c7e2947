// Vectors of f32, for parameters and flat buffers.
#pragma once

#include "backend/cuda/device.cuh"

namespace tandem::backend::cuda {

inline bool aligned_16(const ConstView& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; }

// Whether a flat buffer can be read in vectors of four f32; absent ones do not stand in the way.
inline bool vectors_of_4(const ConstView& view) { return aligned_16(view) && view.size() % 4 == 0; }

// Elements [i, i + 4) of n; kVector promises that all are there and that the address is a multiple of 16. Otherwise
// absent elements read as 0 and are not written.
template <bool kVector>
__device__ float4 load4(const float* from, int64_t i, int64_t n) {
  if constexpr (kVector) {
    return *reinterpret_cast<const float4*>(from + i);
  } else {
    return {from[i], i + 1 < n ? from[i + 1] : 0.0F, i + 2 < n ? from[i + 2] : 0.0F, i + 3 < n ? from[i + 3] : 0.0F};
  }
}

template <bool kVector>
__device__ void store4(float* to, int64_t i, int64_t n, float4 values) {
  if constexpr (kVector) {
    *reinterpret_cast<float4*>(to + i) = values;
  } else {
    const float all[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k < n) {
        to[i + k] = all[k];
      }
    }
  }
}

// The same in 16 bits, at an address that is a multiple of 8.
template <bool kVector, class H>
__device__ void store4(H* to, int64_t i, int64_t n, float4 values) {
  if constexpr (kVector) {
    union {
      typename Half<H>::Pair pairs[2];
      uint2 bits;
    } packed = {{Half<H>::pair(values.x, values.y), Half<H>::pair(values.z, values.w)}};
    *reinterpret_cast<uint2*>(to + i) = packed.bits;
  } else {
    const float all[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k < n) {
        to[i + k] = from_float<H>(all[k]);
      }
    }
  }
}

// A pass over flat buffers: kFlatThreads threads a block, kFlatBlocks blocks a multiprocessor, four elements a thread
// and turn.
constexpr int kFlatThreads = 256, kFlatBlocks = 5;

template <class Body>
__device__ void for_fours(int64_t n, const Body& body) {
  const int64_t step = int64_t{4} * kFlatThreads * gridDim.x;
  for (int64_t i = 4 * (int64_t{kFlatThreads} * blockIdx.x + threadIdx.x); i < n; i += step) {
    body(i);
  }
}

inline int flat_blocks(int64_t n, int processors) {
  const int64_t wanted = divide_up(n, 4 * kFlatThreads), most = int64_t{kFlatBlocks} * processors;
  return static_cast<int>(wanted < most ? wanted : most);
}

}  // namespace tandem::backend::cuda
