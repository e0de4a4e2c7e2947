// The product, then one pass over its result if a mask or the column sums are wanted, unless fused_product.cu can do
// all of it at once.
#include "backend/cuda/activation.cuh"
#include "backend/cuda/column_sums.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/hopper_products.h"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class H>
struct MaskArguments {
  H* dx;
  const H* saved;       // the activation's input; relu: its output, if there is no gate
  const uint8_t* gate;  // relu: a bit for each element, 1 where the gradient flows; may be null
  float* partial;       // [parts, cols]; may be null
  int64_t dx_stride, saved_stride, gate_stride;
  int64_t rows, cols;
  DropoutArguments dropout;
};

// Multiplies eight gradients of a row by their masks.
template <Activation kActivation, bool kVector, class H>
__device__ void mask_gradient(float (&gradient)[8], const MaskArguments<H>& a, const DropoutMask& mask, int64_t row,
                              int64_t col) {
  if constexpr (kActivation == Activation::relu) {  // its zeros hold both masks
    if (a.gate != nullptr) {
      const uint32_t bits = a.gate[row * a.gate_stride + col / 8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        gradient[i] = (bits >> i & 1) != 0 ? gradient[i] * mask.scale() : 0.0F;
      }
    } else {
      float saved[8];
      load8<kVector>(saved, a.saved + row * a.saved_stride, col, a.cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        gradient[i] = saved[i] != 0 ? gradient[i] * mask.scale() : 0.0F;
      }
    }
  } else {
    if (mask.on()) {
      mask.apply(gradient, row, static_cast<uint32_t>(col / 8));
    }
    if constexpr (kActivation != Activation::none) {
      float saved[8];
      load8<kVector>(saved, a.saved + row * a.saved_stride, col, a.cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        gradient[i] *= slope<kActivation>(saved[i]);
      }
    }
  }
}

// dx *= activation' * dropout mask; partial[part] = the column sums of the part's rows. Grid: (column blocks, parts).
template <class H, Activation kActivation, bool kVector>
__global__ void __launch_bounds__(kSumThreads) mask_gradient_kernel(const MaskArguments<H> a) {
  await_previous();
  const DropoutMask mask(a.dropout);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_col = int64_t{blockIdx.x} * kSumColumns, col = first_col + lane * 8;
  const int64_t rows_of_part = (a.rows + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * rows_of_part, end = min(a.rows, begin + rows_of_part);
  float sums[8] = {};
  if (col < a.cols) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
      float gradient[8];
      load8<kVector>(gradient, a.dx + row * a.dx_stride, col, a.cols);
      mask_gradient<kActivation, kVector>(gradient, a, mask, row, col);
      store8<kVector>(a.dx + row * a.dx_stride, col, a.cols, gradient);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[i] += gradient[i];
      }
    }
  }
  if (a.partial != nullptr) {
    write_block_sums(a.partial + blockIdx.y * a.cols, sums, first_col, a.cols);
  }
}

}  // namespace

void op::LinearBackwardInput::run(CudaBackend& gpu) const {
  require(dx.dtype == DType::bf16, "the GPU computes in bf16, not in {}", name_of(dx.dtype));
  if (dx.size() == 0) {
    if (!accumulate_sums) {
      gpu.fill_zero(column_sums);
    }
    return;
  }
  const DropoutArguments drop(dropout);
  const bool masked = activation != Activation::none || drop.on();
  const bool sums = !column_sums.empty();
  require(!(masked && accumulate), "a masked gradient is written, not added to");
  const ConstView bits = activation == Activation::relu ? gate : ConstView{};
  const ProductKernel kernel = kernel_of(*this, gpu.chip());
  if (kernel == ProductKernel::fused) {
    float* partial = sums ? gpu.late_sums().room(fused_parts(dx.rows) * dx.cols) : nullptr;
    fused_backward(dx, dy, w.plain(), bits, drop.scale, partial, gpu.processors(), gpu.queue());
    if (sums) {
      gpu.late_sums().add(sums_of(column_sums, accumulate_sums), partial, fused_parts(dx.rows));
    }
    return;
  }
  gpu.gemm().run({.c = dx, .a = dy, .b = w.plain(), .beta = accumulate ? 1.0F : 0.0F});
  if (kernel == ProductKernel::cublas) {
    return;
  }
  const int64_t column_blocks = divide_up(dx.cols, kSumColumns);
  const int64_t parts = std::max<int64_t>(1, std::min(divide_up(dx.rows, 32), 8 * gpu.processors() / column_blocks));
  float* partial = sums ? gpu.late_sums().room(parts * dx.cols) : nullptr;
  const MaskArguments<Bf16> arguments{.dx = data<Bf16>(dx),
                                      .saved = data<Bf16>(saved),
                                      .gate = data<uint8_t>(bits),
                                      .partial = partial,
                                      .dx_stride = dx.stride,
                                      .saved_stride = saved.stride,
                                      .gate_stride = bits.stride * 4,
                                      .rows = dx.rows,
                                      .cols = dx.cols,
                                      .dropout = drop};
  const bool vectors = vectors_of_8(dx) && (!bits.empty() || vectors_of_8(saved));
  with_activation(activation, [&]<Activation kActivation>() {
    const auto kernel =
        vectors ? mask_gradient_kernel<Bf16, kActivation, true> : mask_gradient_kernel<Bf16, kActivation, false>;
    launch("mask_gradient_kernel", kernel, {{column_blocks, parts}, kSumThreads, 0, gpu.queue()}, arguments);
  });
  if (sums) {
    gpu.late_sums().add(sums_of(column_sums, accumulate_sums), partial, parts);
  }
}

}  // namespace tandem::backend
