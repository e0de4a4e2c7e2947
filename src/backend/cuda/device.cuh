// What kernels share: their 16-bit type, reductions in a fixed order, launch sizes.
#pragma once

#include "backend/cuda/half.cuh"
#include "backend/cuda/launch.cuh"
#include "tensor/view.h"

namespace tandem::backend::cuda {

constexpr int kWarp = 32;

// Null for an absent view.
template <class T>
T* data(const View& view) {
  return static_cast<T*>(view.data);
}
template <class T>
const T* data(const ConstView& view) {
  return static_cast<const T*>(view.data);
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where something in shared memory lies, as instructions on it want to know.
__device__ inline uint32_t shared_of(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

// Whether every row of the view begins at a multiple of 16 bytes and holds whole vectors of eight numbers of 16 bits.
inline bool vectors_of_8(const ConstView& view) {
  return view.empty() ||
         (reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride % 8 == 0 && view.cols % 8 == 0);
}

// The same result in every lane; a fixed order, so the same bits each time.
template <class T>
__device__ T sum_of_warp(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, distance);
  }
  return value;
}

template <class T>
__device__ T most_of_warp(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
  }
  return value;
}

// Sum over a block of kThreads threads, in every thread. `shared` holds kThreads / 32 values; the block may not read or
// write it between two calls without a barrier of its own.
template <int kThreads, class T>
__device__ T sum_of_block(T value, T* shared) {
  value = sum_of_warp(value);
  if constexpr (kThreads > kWarp) {
    __syncthreads();
    if (threadIdx.x % kWarp == 0) {
      shared[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = shared[0];
#pragma unroll
    for (int i = 1; i < kThreads / kWarp; ++i) {
      value += shared[i];
    }
  }
  return value;
}

}  // namespace tandem::backend::cuda
