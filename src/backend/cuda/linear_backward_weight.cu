#include "backend/cuda/column_sums.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/weight_gradient.h"

namespace tandem {

namespace {

using namespace cuda;

// partial[part, col] = sum of dy[row, col] over the rows of the part. Grid: (column blocks, parts).
template <bool kVector>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_kernel(float* partial, const Bf16* dy, int64_t stride, int64_t rows, int64_t cols) {
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

}  // namespace

void CudaBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x,
                                         RowParts parts, bool accumulate) {
  const WeightGradient gradient{dw, dbias, dy, x};
  linear_backward_weights(std::span(&gradient, 1), parts, accumulate);
}

void CudaBackend::linear_backward_weights(std::span<const WeightGradient> gradients, RowParts /*parts*/,
                                          bool accumulate) {
  for (const auto& [dw, dbias, dy, x] : gradients) {
    require(dw.dtype == DType::f32, "the GPU keeps parameter gradients in f32, not in {}", name_of(dw.dtype));
    if (dw.size() > 0 && !dbias.empty()) {  // first, while dy may still be in the cache
      sum_columns(dbias, dy, accumulate);
    }
  }
  if (weight_gradients_possible(gradients, processors_)) {
    weight_gradients(gradients, accumulate, processors_, stream_);
    return;
  }
  for (const auto& [dw, dbias, dy, x] : gradients) {
    if (dy.rows > 0) {
      gemm_->run({.c = dw, .a = dy, .b = x, .transpose_a = true, .beta = accumulate ? 1.0F : 0.0F});
    } else if (!accumulate) {
      fill_zero(dw);
    }
  }
}

void CudaBackend::sum_columns(const View& sums, const View& dy, bool accumulate) {
  if (dy.rows == 0) {
    if (!accumulate) {
      fill_zero(sums);
    }
    return;
  }
  const int64_t column_blocks = divide_up(dy.cols, kSumColumns);
  const int64_t parts = std::max<int64_t>(1, std::min(divide_up(dy.rows, 64), 8 * processors_ / column_blocks));
  float* partial = late_sums_->room(parts * dy.cols);
  const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts));
  const auto kernel = vectors_of_8(dy) ? column_sums_kernel<true> : column_sums_kernel<false>;
  launch("column_sums_kernel", kernel, {grid, kSumThreads, 0, stream_}, partial, data<Bf16>(dy), dy.stride, dy.rows,
         dy.cols);
  late_sums_->add(sums_of(sums, accumulate), partial, parts);
}

}  // namespace tandem
