#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kRowGroups = 8;         // warps of a block, each with rows of its own
constexpr int kColumnsOfBlock = 256;  // 32 lanes x 8 columns

// partial[part, col] = sum of dy[row, col] over the rows of the part. Grid: (column blocks, parts).
template <bool kVector>
__global__ void column_sums_kernel(float* partial, const Bf16* dy, int64_t stride, int64_t rows, int64_t cols) {
  __shared__ float shared[kRowGroups][kColumnsOfBlock];
  const int lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp;
  const int64_t col = int64_t{blockIdx.x} * kColumnsOfBlock + lane * 8;
  const int64_t rows_of_part = (rows + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * rows_of_part, end = min(rows, begin + rows_of_part);
  float sums[8] = {};
  if (col < cols) {
#pragma unroll 4
    for (int64_t row = begin + group; row < end; row += kRowGroups) {
      float values[8];
      load8<kVector>(values, dy + row * stride, col, cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[i] += values[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    shared[group][lane * 8 + i] = sums[i];
  }
  __syncthreads();
  const int64_t own = int64_t{blockIdx.x} * kColumnsOfBlock + threadIdx.x;
  if (own < cols) {
    float total = 0;
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
      total += shared[g][threadIdx.x];
    }
    partial[blockIdx.y * cols + own] = total;
  }
}

__global__ void add_parts_kernel(float* sums, const float* partial, int parts, int64_t cols) {
  const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col < cols) {
    float total = 0;
    for (int part = 0; part < parts; ++part) {
      total += partial[part * cols + col];
    }
    sums[col] += total;
  }
}

}  // namespace

void CudaBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x) {
  require(dw.dtype == DType::f32, "the GPU keeps parameter gradients in f32, not in {}", name_of(dw.dtype));
  if (dw.size() == 0 || dy.rows == 0) {
    return;
  }
  gemm_->run({.c = dw, .a = dy, .b = x, .transpose_a = true, .beta = 1});
  if (dbias.empty()) {
    return;
  }
  static_assert(kThreads == kRowGroups * kWarp && kThreads == kColumnsOfBlock);
  const int64_t cols = dy.cols, column_blocks = divide_up(cols, kColumnsOfBlock);
  const int64_t parts = std::min(divide_up(dy.rows, 64), std::max<int64_t>(1, 4 * processors_ / column_blocks));
  float* partial = scratch<float>(parts * cols);
  const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts));
  const auto kernel = vectors_of_8(dy) ? column_sums_kernel<true> : column_sums_kernel<false>;
  kernel<<<grid, kThreads, 0, stream_>>>(partial, data<Bf16>(dy), dy.stride, dy.rows, cols);
  check_launch("column_sums_kernel");
  add_parts_kernel<<<static_cast<unsigned>(divide_up(cols, kThreads)), kThreads, 0, stream_>>>(
      data<float>(dbias), partial, static_cast<int>(parts), cols);
  check_launch("add_parts_kernel");
}

}  // namespace tandem
