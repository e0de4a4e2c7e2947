// Shared by all kernels: their 16-bit type, reductions in a fixed order, launch sizes.
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

// The 32-bit address of something in shared memory, as instructions take it.
__device__ inline uint32_t shared_of(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

// Whether every row of the view begins at a multiple of 16 bytes and holds whole vectors of eight numbers of 16 bits.
inline bool vectors_of_8(const ConstView& view) {
  return view.empty() ||
         (reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride % 8 == 0 && view.cols % 8 == 0);
}

// 2^x, nearly exact; numbers below 2^-126 count as 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The sum over the warp, or over each kLanes lanes of it, in every lane. The order is fixed, and so are the bits.
template <int kLanes = kWarp, class T>
__device__ T sum_of_warp(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
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

// ---- f32, for parameters and flat buffers

inline bool aligned_16(const ConstView& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; }

// Whether a flat buffer can be read in vectors of four f32; true for an absent one.
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

// A pass over flat buffers: kFlatThreads threads per block, kFlatBlocks blocks per multiprocessor, four elements per
// thread and turn.
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
