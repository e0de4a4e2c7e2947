// Bias and relu run in the product's own epilogue. Dropout and the other activations need a pass of their own, in which
// relu also notes one bit for each element where the gradient flows (the gate).
#include "backend/cuda/activation.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/dropout.cuh"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kGroupsOfThread = 2;  // of eight columns

struct ActivateArguments {
  Bf16* y;
  const Bf16* x;
  uint8_t* gate;  // or null: byte [row * gate_stride + col / 8] gets the bits of eight columns
  int64_t y_stride, x_stride, gate_stride;
  int64_t first_row;  // of these rows in the whole matrix
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

// y = dropout(activation(x)), and the gate.
template <Activation kActivation, bool kVector>
__global__ void activate_kernel(const ActivateArguments a) {
  const DropoutMask mask(a.dropout);
  const int64_t groups = (a.cols + 7) / 8;
  const int64_t first = int64_t{blockIdx.x} * kThreads * kGroupsOfThread + threadIdx.x;
  float values[kGroupsOfThread][8];
#pragma unroll
  for (int g = 0; g < kGroupsOfThread; ++g) {
    const int64_t i = first + g * kThreads;
    if (i < a.rows * groups) {
      load8<kVector>(values[g], a.x + i / groups * a.x_stride, i % groups * 8, a.cols);
    }
  }
#pragma unroll
  for (int g = 0; g < kGroupsOfThread; ++g) {
    const int64_t i = first + g * kThreads;
    if (i < a.rows * groups) {
      const int64_t row = i / groups, group = i % groups;
#pragma unroll
      for (float& value : values[g]) {
        value = activate<kActivation>(value);
      }
      if (mask.on()) {
        mask.apply(values[g], a.first_row + row, static_cast<uint32_t>(group));
      }
      store8<kVector>(a.y + row * a.y_stride, group * 8, a.cols, values[g]);
      if (a.gate != nullptr) {
        a.gate[row * a.gate_stride + group] = bits_of(values[g]);
      }
    }
  }
}

void launch_activate(Activation activation, const View& y, const View& x, const View& gate, const Dropout& dropout,
                     int64_t first_row, cudaStream_t stream) {
  const ActivateArguments arguments{.y = data<Bf16>(y),
                                    .x = data<Bf16>(x),
                                    .gate = data<uint8_t>(gate),
                                    .y_stride = y.stride,
                                    .x_stride = x.stride,
                                    .gate_stride = gate.stride * 4,
                                    .first_row = first_row,
                                    .rows = y.rows,
                                    .cols = y.cols,
                                    .dropout = DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(y) && vectors_of_8(x);
  const auto blocks = static_cast<unsigned>(divide_up(y.rows * divide_up(y.cols, 8), kThreads * kGroupsOfThread));
  with_activation(activation, [&]<Activation kActivation>() {
    const auto kernel = vectors ? activate_kernel<kActivation, true> : activate_kernel<kActivation, false>;
    kernel<<<blocks, kThreads, 0, stream>>>(arguments);
  });
  check_launch("activate_kernel");
}

GemmEpilogue gemm_epilogue(bool bias, bool relu) {
  if (relu) {
    return bias ? GemmEpilogue::relu_bias : GemmEpilogue::relu;
  }
  return bias ? GemmEpilogue::bias : GemmEpilogue::none;
}

}  // namespace

void CudaBackend::linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) {
  require(y.dtype == DType::bf16, "the GPU computes in bf16, not in {}", name_of(y.dtype));
  if (y.size() == 0) {
    return;
  }
  const bool curved = epilogue.activation == Activation::gelu || epilogue.activation == Activation::swish;
  const View product = curved && !epilogue.pre.empty() ? epilogue.pre : y;
  const View gate = epilogue.activation == Activation::relu ? epilogue.gate : View{};
  const bool pass = curved || DropoutArguments(epilogue.dropout).on() || !gate.empty();
  const int64_t step = pass ? rows_at_a_time(y) : y.rows;
  for (int64_t first = 0; first < y.rows; first += step) {
    const int64_t rows = std::min(step, y.rows - first);
    const View made = product.slice_rows(first, rows);
    gemm_->run({.c = made,
                .a = x.slice_rows(first, rows),
                .b = w,
                .transpose_b = true,
                .epilogue = gemm_epilogue(!epilogue.bias.empty(), epilogue.activation == Activation::relu),
                .bias = epilogue.bias});
    if (pass) {
      launch_activate(curved ? epilogue.activation : Activation::none, y.slice_rows(first, rows), made,
                      gate.empty() ? gate : gate.slice_rows(first, rows), epilogue.dropout, first, stream_);
    }
  }
}

}  // namespace tandem
