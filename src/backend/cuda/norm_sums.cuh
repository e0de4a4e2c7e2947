// Sums over rows of activations (norm_row.cuh), column by column: what the gradients of parameters are made of.
#pragma once

#include "backend/cuda/norm_row.cuh"

namespace tandem::cuda {

// Adds up what the rows' threads hold for the same columns; the sums end with the block's first row of threads.
// `shared` holds 8 * kVectors * kBlock values.
template <class Row>
__device__ void add_over_places(float (&sums)[2][Row::kVectors][8], float* shared) {
  constexpr int kHalf = Row::kBlock / 2;
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int threads = kHalf; threads >= Row::kThreads; threads /= 2) {
    float* column = shared + me % threads;
    if (me >= threads && me < 2 * threads) {
#pragma unroll
      for (int e = 0; e < 2 * Row::kVectors * 8; ++e) {
        column[e * kHalf] = sums[e / (8 * Row::kVectors)][e / 8 % Row::kVectors][e % 8];
      }
    }
    __syncthreads();
    if (me < threads) {
#pragma unroll
      for (int e = 0; e < 2 * Row::kVectors * 8; ++e) {
        sums[e / (8 * Row::kVectors)][e / 8 % Row::kVectors][e % 8] += column[e * kHalf];
      }
    }
    __syncthreads();
  }
}

// The sums of dbranch over a thread's rows, in shared memory: registers are few. Only the thread itself uses its own
// until all rows are done.
template <class Row>
struct BranchSums {
  static constexpr int kFours = 2 * Row::kVectors;
  float4 four[kFours][Row::kBlock];

  __device__ void clear() {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      four[f][threadIdx.x] = {0, 0, 0, 0};
    }
  }
  __device__ void add(const float (&d)[Row::kVectors][8]) {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float* more = d[f / 2] + f % 2 * 4;
      float4 sum = four[f][threadIdx.x];
      sum = {sum.x + more[0], sum.y + more[1], sum.z + more[2], sum.w + more[3]};
      four[f][threadIdx.x] = sum;
    }
  }
  // Behind a barrier: the sums over the block's rows. Each row of threads takes some of the columns.
  __device__ void write(float* to, int cols) const {
    for (int f = Row::place(); f < kFours; f += Row::kRowsPerBlock) {
      float4 sum = {0, 0, 0, 0};
#pragma unroll
      for (int place = 0; place < Row::kRowsPerBlock; ++place) {
        const float4 more = four[f][place * Row::kThreads + Row::thread()];
        sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
      }
      const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (Row::has(f / 2, f % 2 * 4 + i, cols)) {
          to[Row::column(f / 2) + f % 2 * 4 + i] = sums[i];
        }
      }
    }
  }
};

}  // namespace tandem::cuda
