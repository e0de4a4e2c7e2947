#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

constexpr int kThreads = 256;

template <class H>
struct Arguments {
  H* x;
  const int32_t *tokens, *position;
  const H* table;
  const float* positions;
  int64_t x_stride, table_stride, positions_stride, rows, cols;
  float scale;
  DropoutArguments dropout;
};

// One warp per row.
template <class H, bool kVector>
__global__ void __launch_bounds__(kThreads) embed_kernel(const Arguments<H> a) {
  await_previous();
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= a.rows) {
    return;
  }
  const DropoutMask mask(a.dropout);
  H* x = a.x + row * a.x_stride;
  const H* table = a.table + a.tokens[row] * a.table_stride;
  const float* place = a.positions + a.position[row] * a.positions_stride;
  for (int64_t col = int64_t{8} * (threadIdx.x % kWarp); col < a.cols; col += 8 * kWarp) {
    float values[8];
    load8<kVector>(values, table, col, a.cols);
    const float4 low = load4<kVector>(place, col, a.cols);
    const float4 high = kVector || col + 4 < a.cols ? load4<kVector>(place, col + 4, a.cols) : float4{0, 0, 0, 0};
    const float added[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = values[i] * a.scale + added[i];
    }
    if (mask.on()) {
      mask.apply(values, row, static_cast<uint32_t>(col / 8));
    }
    store8<kVector>(x, col, a.cols, values);
  }
}

}  // namespace

void op::Embed::run(CudaBackend& gpu) const {
  const ConstView& matrix = table.plain();
  require(x.dtype == DType::bf16 && matrix.dtype == DType::bf16 && positions.dtype == DType::f32,
          "embed on a GPU takes a bf16 table and f32 positions, not {} and {}", name_of(matrix.dtype),
          name_of(positions.dtype));
  if (x.size() == 0) {
    return;
  }
  const Arguments<Bf16> arguments{data<Bf16>(x),
                                  data<const int32_t>(tokens),
                                  data<const int32_t>(position),
                                  data<const Bf16>(matrix),
                                  data<const float>(positions),
                                  x.stride,
                                  matrix.stride,
                                  positions.stride,
                                  x.rows,
                                  x.cols,
                                  scale,
                                  DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(x) && vectors_of_8(matrix) && aligned_16(positions) && positions.stride % 4 == 0;
  const auto kernel = vectors ? embed_kernel<Bf16, true> : embed_kernel<Bf16, false>;
  launch("embed", kernel, {divide_up(x.rows * kWarp, kThreads), kThreads, 0, gpu.queue()}, arguments);
}

}  // namespace tandem::backend
