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

// Vectors of `cols` sums each, whose parts lie side by side in rows of [count, cols].
struct Sums {
  float* to[3];
  int count, cols;
  bool accumulate;
};

// sums = or += parts[0] + parts[1] + ... A block of 32 x 32 threads has 32 columns, each of its warps every 32nd part.
static __global__ void __launch_bounds__(kWarp* kWarp)
    add_parts_kernel(const __grid_constant__ Sums sums, const float* parts, int count) {
  await_previous();
  __shared__ float shared[kWarp][kWarp + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int width = sums.count * sums.cols, first = static_cast<int>(blockIdx.x) * kWarp;
  float sum = 0;
  if (first + x < width) {
#pragma unroll 8
    for (int i = y; i < count; i += kWarp) {
      sum += parts[int64_t{i} * width + first + x];
    }
  }
  shared[y][x] = sum;
  __syncthreads();
  sum = sum_of_warp(shared[x][y]);
  const int column = first + y;
  if (x == 0 && column < width) {
    float& to = sums.to[column / sums.cols][column % sums.cols];
    to = sums.accumulate ? to + sum : sum;
  }
}

// From `count` parts; none: the sums are 0.
inline void add_parts(const Sums& sums, const float* parts, int64_t count, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(divide_up(sums.count * sums.cols, kWarp));
  launch("add_parts_kernel", add_parts_kernel, {blocks, dim3(kWarp, kWarp), 0, stream}, sums, parts,
         static_cast<int>(count));
}
inline void add_parts(const View& sums, bool accumulate, const float* parts, int64_t count, cudaStream_t stream) {
  add_parts({{data<float>(sums)}, 1, static_cast<int>(sums.cols), accumulate}, parts, count, stream);
}

}  // namespace tandem::cuda
