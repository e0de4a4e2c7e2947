// Partial sums over the rows of a matrix; late_sums.h adds them up.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/late_sums.h"

namespace tandem::backend::cuda {

constexpr int kSumWarps = 8;  // warps per block, each with rows of its own
constexpr int kSumThreads = kSumWarps * kWarp;
constexpr int kSumColumns = kWarp * 8;  // columns per block: eight per lane

// Adds up the warps' sums of each lane's eight columns in a block of kSumThreads, and writes them to `partial`, from
// `first_col` on. Every thread of the block must call it.
__device__ inline void write_block_sums(float* partial, const float (&sums)[8], int64_t first_col, int64_t cols) {
  __shared__ float shared[kSumWarps][kSumColumns];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    shared[warp][lane * 8 + i] = sums[i];
  }
  __syncthreads();
  const int64_t own = first_col + threadIdx.x;
  if (own < cols) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) {
      total += shared[w][threadIdx.x];
    }
    partial[own] = total;
  }
}

// The sums of one vector.
inline Sums sums_of(const View& vector, bool accumulate) {
  return {{data<float>(vector)}, 1, static_cast<int>(vector.cols), accumulate};
}

}  // namespace tandem::backend::cuda
