#include "backend/cuda/column_sums.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/hopper_products.h"

namespace tandem::backend {

namespace {

using namespace cuda;

// partial[part, col] = sum of dy[row, col] over the rows of the part. Grid: (column blocks, parts).
template <class H, bool kVector>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_kernel(float* partial, const H* dy, int64_t stride, int64_t rows, int64_t cols) {
  await_previous();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_col = int64_t{blockIdx.x} * kSumColumns, col = first_col + lane * 8;
  const int64_t rows_of_part = (rows + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * rows_of_part, end = min(rows, begin + rows_of_part);
  float sums[8] = {};
  if (col < cols) {
#pragma unroll 8
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
      float values[8];
      load8<kVector>(values, dy + row * stride, col, cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[i] += values[i];
      }
    }
  }
  write_block_sums(partial + blockIdx.y * cols, sums, first_col, cols);
}

void sum_columns(const View& sums, const ConstView& dy, bool accumulate, CudaBackend& gpu) {
  if (dy.rows == 0) {
    if (!accumulate) {
      gpu.fill_zero(sums);
    }
    return;
  }
  const int64_t column_blocks = divide_up(dy.cols, kSumColumns);
  const int64_t parts = std::max<int64_t>(1, std::min(divide_up(dy.rows, 64), 8 * gpu.processors() / column_blocks));
  float* partial = gpu.late_sums().room(parts * dy.cols);
  const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts));
  const auto kernel = vectors_of_8(dy) ? column_sums_kernel<Bf16, true> : column_sums_kernel<Bf16, false>;
  launch("column_sums_kernel", kernel, {grid, kSumThreads, 0, gpu.queue()}, partial, data<Bf16>(dy), dy.stride, dy.rows,
         dy.cols);
  gpu.late_sums().add(sums_of(sums, accumulate), partial, parts);
}

}  // namespace

void op::LinearBackwardWeights::run(CudaBackend& gpu) const {
  for (const auto& [dw, dbias, dy, x] : gradients) {
    require(dw.dtype == DType::f32, "the GPU keeps parameter gradients in f32, not in {}", name_of(dw.dtype));
    if (dw.size() > 0 && !dbias.empty()) {  // first, while dy may still be in the cache
      sum_columns(dbias, dy, accumulate, gpu);
    }
  }
  if (const ProductKernel kernel = kernel_of(*this, gpu.chip()); kernel != ProductKernel::cublas) {
    weight_gradients(gradients, accumulate, kernel, gpu.queue());
    return;
  }
  for (const auto& [dw, dbias, dy, x] : gradients) {
    if (dy.rows > 0) {
      gpu.gemm().run({.c = dw, .a = dy, .b = x, .transpose_a = true, .beta = accumulate ? 1.0F : 0.0F});
    } else if (!accumulate) {
      gpu.fill_zero(dw);
    }
  }
}

}  // namespace tandem::backend
