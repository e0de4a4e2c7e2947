#include "backend/cuda/device.cuh"
#include "backend/cuda/late_sums.h"

namespace tandem::backend::cuda {

namespace {

constexpr int64_t kAlignment = 64;  // floats

// A block of 32 x 32 threads adds up 32 columns of one entry; each of its warps takes every 32nd part.
__global__ void __launch_bounds__(kWarp* kWarp) add_parts_kernel(const __grid_constant__ SumsBatch batch) {
  await_previous();
  __shared__ float shared[kWarp][kWarp + 1];
  const int block = static_cast<int>(blockIdx.x);
  int i = 0;
  while (i + 1 < batch.count && batch.entry[i + 1].first_block <= block) {
    ++i;
  }
  const SumsBatch::Entry& entry = batch.entry[i];
  const Sums& sums = entry.sums;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int width = sums.count * sums.cols, first = (block - entry.first_block) * kWarp;
  float sum = 0;
  if (first + x < width) {
#pragma unroll 8
    for (int row = y; row < entry.rows; row += kWarp) {
      sum += entry.parts[int64_t{row} * width + first + x];
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

}  // namespace

float* LateSums::room(int64_t floats) {
  require(floats <= capacity(), "an op needs memory for {} partial sums, but there is room for {}", floats, capacity());
  if (used_ + floats > capacity()) {
    settle();
  }
  float* const parts = static_cast<float*>(memory_.data()) + used_;
  used_ += divide_up(floats, kAlignment) * kAlignment;
  return parts;
}

void LateSums::add(const Sums& sums, const float* parts, int64_t rows) {
  waiting_.entry[waiting_.count++] = {sums, parts, static_cast<int>(rows), waiting_.blocks};
  waiting_.blocks += static_cast<int>(divide_up(int64_t{sums.count} * sums.cols, kWarp));
  if (!held_ || waiting_.count == SumsBatch::kMost) {
    settle();
  }
}

void LateSums::hold(bool on) {
  held_ = on;
  if (on) {
    forget();
  } else {
    settle();
  }
}

void LateSums::settle() {
  if (waiting_.blocks > 0) {
    launch("add_parts_kernel", add_parts_kernel, {waiting_.blocks, dim3(kWarp, kWarp), 0, stream_}, waiting_);
  }
  forget();
}

void LateSums::forget() {
  waiting_.count = waiting_.blocks = 0;
  used_ = 0;
}

}  // namespace tandem::backend::cuda
