// f32 of a row's columns (norm_row.cuh) in shared memory, and sums over rows, column by column: what the gradients of
// parameters are made of.
#pragma once

#include "backend/cuda/norm_row.cuh"

namespace tandem::backend::cuda {

// The columns of kCount threads, four at a time: thread i has four[...][i].
template <class Row, int kCount>
struct Fours {
  static constexpr int kFours = 2 * Row::kVectors;  // of a thread
  float4 four[kFours][kCount];

  __device__ void set(int i, const float (&values)[Row::kVectors][8]) {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float* from = values[f / 2] + f % 2 * 4;
      four[f][i] = {from[0], from[1], from[2], from[3]};
    }
  }
  __device__ void add(int i, const float (&more)[Row::kVectors][8]) {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float* from = more[f / 2] + f % 2 * 4;
      const float4 sum = four[f][i];
      four[f][i] = {sum.x + from[0], sum.y + from[1], sum.z + from[2], sum.w + from[3]};
    }
  }
  __device__ void get(float (&values)[8], int i, int vector) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 from = four[2 * vector + half][i];
      values[4 * half] = from.x, values[4 * half + 1] = from.y;
      values[4 * half + 2] = from.z, values[4 * half + 3] = from.w;
    }
  }
};

template <class Row>
using ColumnSums = Fours<Row, Row::kBlock>;  // what the block's threads have added up, each for itself

// Behind a barrier: to[0], to[1] and, if wanted, to[2], each [cols], = the sums over the block's rows of the two
// vectors and the third. Each row of threads takes some of the columns.
template <class Row>
__device__ void write_sums(float* to, const ColumnSums<Row> (&two)[2], const ColumnSums<Row>& third, bool wanted,
                           int cols) {
  constexpr int kFours = ColumnSums<Row>::kFours;
  for (int i = Row::place(); i < (wanted ? 3 : 2) * kFours; i += Row::kRowsPerBlock) {
    const int f = i % kFours;
    const float4* from = (i < 2 * kFours ? two[i / kFours] : third).four[f] + Row::thread();
    float4 sum = from[0];
#pragma unroll
    for (int place = 1; place < Row::kRowsPerBlock; ++place) {
      const float4 more = from[place * Row::kThreads];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    Row::store_four(to + int64_t{i / kFours} * cols, f, cols, sum);
  }
}

}  // namespace tandem::backend::cuda
