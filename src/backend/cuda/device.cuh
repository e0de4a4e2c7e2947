// What kernels share: vectors of bf16, reductions in a fixed order, launch sizes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "backend/cuda/launch.cuh"
#include "tensor/view.h"

namespace tandem::backend::cuda {

using Bf16 = __nv_bfloat16;
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

// Eight bf16.
struct alignas(16) Bf16x8 {
  __nv_bfloat162 pair[4];

  __device__ void unpack(float (&to)[8]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 both = __bfloat1622float2(pair[i]);
      to[2 * i] = both.x;
      to[2 * i + 1] = both.y;
    }
  }
  __device__ static Bf16x8 pack(const float (&from)[8]) {
    Bf16x8 result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      result.pair[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
    }
    return result;
  }
};

// Eight bf16 in one access of 16 bytes. (A copy of the struct goes pair by pair.)
__device__ inline Bf16x8 load_vector(const void* from) {
  const uint4 bits = *static_cast<const uint4*>(from);
  Bf16x8 vector;
  memcpy(static_cast<void*>(&vector), &bits, sizeof(bits));
  return vector;
}

__device__ inline void store_vector(void* to, const Bf16x8& vector) {
  uint4 bits;
  memcpy(&bits, &vector, sizeof(bits));
  *static_cast<uint4*>(to) = bits;
}

// Columns [col, col + 8) of a row of `cols`; in the vector form the caller promises that all eight are there and that
// the address is a multiple of 16. Otherwise absent columns read as 0 and are not written.
template <bool kVector>
__device__ void load8(float (&to)[8], const Bf16* row, int64_t col, int64_t cols) {
  if constexpr (kVector) {
    load_vector(row + col).unpack(to);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i] = col + i < cols ? __bfloat162float(row[col + i]) : 0.0F;
    }
  }
}

template <bool kVector>
__device__ void store8(Bf16* row, int64_t col, int64_t cols, const float (&from)[8]) {
  if constexpr (kVector) {
    store_vector(row + col, Bf16x8::pack(from));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (col + i < cols) {
        row[col + i] = __float2bfloat16_rn(from[i]);
      }
    }
  }
}

// Whether every row of the view begins at a multiple of 16 bytes and holds whole vectors of eight bf16.
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
