// Sums over the rows of a matrix, without atomics: parts of the rows first, then the parts in their order.
#pragma once

#include "backend/cuda/device.cuh"

namespace tandem::cuda {

constexpr int kSumWarps = 8;  // of a block, each with rows of its own
constexpr int kSumThreads = kSumWarps * kWarp;
constexpr int kSumColumns = kWarp * 8;  // of a block: a lane has eight

// In a block of kSumThreads: the warps' sums of a lane's eight columns from `col` on, added up and written to
// partial[col]. Every thread of the block must call it.
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

// sums[col] += partial[0][col] + partial[1][col] + ... Blocks of 32 columns.
static __global__ void add_parts_kernel(float* sums, const float* partial, int parts, int64_t cols) {
  await_previous();
  __shared__ float shared[kSumWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t col = int64_t{blockIdx.x} * kWarp + lane;
  float total = 0;
  if (col < cols) {
#pragma unroll 8
    for (int part = warp; part < parts; part += kSumWarps) {
      total += partial[part * cols + col];
    }
  }
  shared[warp][lane] = total;
  __syncthreads();
  if (warp == 0 && col < cols) {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) {
      all += shared[w][lane];
    }
    sums[col] += all;
  }
}

inline void add_parts(const View& sums, const float* partial, int64_t parts, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(divide_up(sums.cols, kWarp));
  launch("add_parts_kernel", add_parts_kernel, {blocks, kSumThreads, 0, stream}, data<float>(sums), partial,
         static_cast<int>(parts), sums.cols);
}

}  // namespace tandem::cuda
