// Bias and relu run in the product's own epilogue, and so does dropout after relu if fused_product.cu can do it.
// Otherwise dropout and the other activations need a pass of their own, in which relu also writes the gate: one bit for
// each element, 1 where the gradient flows.
#include "backend/cuda/activation.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/hopper_products.h"

namespace tandem::backend {

namespace {

using namespace cuda;

constexpr int kWarps = 8;
constexpr int kColumns = kWarp * 8;  // columns per block: eight per lane
constexpr int kRowsOfWarp = 4;

template <class H>
struct ActivateArguments {
  H* y;
  const H* x;
  uint8_t* gate;  // byte [row * gate_stride + col / 8] gets the bits of eight columns; may be null
  int64_t y_stride, x_stride, gate_stride;
  int64_t rows, cols;
  DropoutArguments dropout;
};

__device__ uint8_t bits_of(const float (&values)[8]) {
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    bits |= (values[j] != 0 ? 1U : 0U) << j;
  }
  return static_cast<uint8_t>(bits);
}

// y = dropout(activation(x)), and the gate. Grid: (column blocks, row blocks).
template <class H, Activation kActivation, bool kVector>
__global__ void __launch_bounds__(kWarps* kWarp) activate_kernel(const ActivateArguments<H> a) {
  await_previous();
  const DropoutMask mask(a.dropout);
  const int64_t col = int64_t{blockIdx.x} * kColumns + threadIdx.x % kWarp * 8;
  const int64_t first = int64_t{blockIdx.y} * kWarps * kRowsOfWarp + threadIdx.x / kWarp;
  if (col >= a.cols) {
    return;
  }
  float values[kRowsOfWarp][8];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (const int64_t row = first + r * kWarps; row < a.rows) {
      load8<kVector>(values[r], a.x + row * a.x_stride, col, a.cols);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int64_t row = first + r * kWarps;
    if (row >= a.rows) {
      break;
    }
#pragma unroll
    for (float& value : values[r]) {
      value = activate<kActivation>(value);
    }
    if (mask.on()) {
      mask.apply(values[r], row, static_cast<uint32_t>(col / 8));
    }
    store8<kVector>(a.y + row * a.y_stride, col, a.cols, values[r]);
    if (a.gate != nullptr) {
      a.gate[row * a.gate_stride + col / 8] = bits_of(values[r]);
    }
  }
}

void launch_activate(Activation activation, const View& y, const ConstView& x, const View& gate, const Dropout& dropout,
                     cudaStream_t stream) {
  const ActivateArguments<Bf16> arguments{.y = data<Bf16>(y),
                                          .x = data<Bf16>(x),
                                          .gate = data<uint8_t>(gate),
                                          .y_stride = y.stride,
                                          .x_stride = x.stride,
                                          .gate_stride = gate.stride * 4,
                                          .rows = y.rows,
                                          .cols = y.cols,
                                          .dropout = DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(y) && vectors_of_8(x);
  const Grid grid(divide_up(y.cols, kColumns), divide_up(y.rows, kWarps * kRowsOfWarp));
  with_activation(activation, [&]<Activation kActivation>() {
    const auto kernel = vectors ? activate_kernel<Bf16, kActivation, true> : activate_kernel<Bf16, kActivation, false>;
    launch("activate_kernel", kernel, {grid, kWarps * kWarp, 0, stream}, arguments);
  });
}

}  // namespace

void op::Linear::run(CudaBackend& gpu) const {
  require(y.dtype == DType::bf16, "the GPU computes in bf16, not in {}", name_of(y.dtype));
  if (y.size() == 0) {
    return;
  }
  const bool curved = activation == Activation::gelu || activation == Activation::swish;
  const View product = curved && !pre.empty() ? pre : y;
  const View bits = activation == Activation::relu ? gate : View{};
  const ProductKernel kernel = kernel_of(*this, gpu.chip());
  if (kernel == ProductKernel::fused) {
    fused_forward(y, x, w.plain(), bias, bits, DropoutArguments(dropout), gpu.processors(), gpu.queue());
    return;
  }
  gpu.gemm().run({.c = product,
                  .a = x,
                  .b = w.plain(),
                  .transpose_b = true,
                  .relu = activation == Activation::relu,
                  .bias = bias});
  if (kernel == ProductKernel::cublas_and_passes) {
    launch_activate(curved ? activation : Activation::none, y, product, bits, dropout, gpu.queue());
  }
}

}  // namespace tandem::backend
