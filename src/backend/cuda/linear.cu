// Products with what follows them: bias, activation and dropout forward; the activation's and dropout's masks backward.
//
// Bias and relu run in the product's own epilogue. Dropout needs a pass of its own, in which relu's forward also notes
// one bit for each element where the gradient flows (the gate), so that backward is again one product with an epilogue.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;

struct Rows {
  Bf16* data = nullptr;
  int64_t stride = 0;

  Rows() = default;
  explicit Rows(const View& view) : data(cuda::data<Bf16>(view)), stride(view.stride) {}
  __device__ Bf16* row(int64_t r) const { return data + r * stride; }
};

__device__ float sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }

// relu is done in the product's epilogue.
template <Activation kActivation>
__device__ float activate(float x) {
  if constexpr (kActivation == Activation::gelu) {
    return 0.5F * x * (1.0F + erff(x * 0.70710678F));
  } else if constexpr (kActivation == Activation::swish) {
    return x * sigmoid(x);
  } else {
    return x;
  }
}

// The derivative at the activation's input.
template <Activation kActivation>
__device__ float slope(float x) {
  if constexpr (kActivation == Activation::gelu) {
    return 0.5F * (1.0F + erff(x * 0.70710678F)) + x * 0.39894228F * __expf(-0.5F * x * x);
  } else if constexpr (kActivation == Activation::swish) {
    const float s = sigmoid(x);
    return s * (1.0F + x * (1.0F - s));
  } else {
    return 1.0F;
  }
}

// y = dropout(activation(x)); gate (may be null): byte [row * gate_stride + col / 8] gets the bits of eight columns.
template <Activation kActivation, bool kVector>
__global__ void activate_kernel(Rows y, Rows x, uint8_t* gate, int64_t gate_stride, int64_t rows, int64_t cols,
                                DropoutArguments arguments) {
  const DropoutMask mask(arguments);
  const int64_t groups = (cols + 7) / 8;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * groups) {
    return;
  }
  const int64_t row = i / groups, group = i % groups;
  float values[8];
  load8<kVector>(values, x.row(row), group * 8, cols);
#pragma unroll
  for (float& value : values) {
    value = activate<kActivation>(value);
  }
  if (mask.on()) {
    mask.apply(values, row, static_cast<uint32_t>(group));
  }
  store8<kVector>(y.row(row), group * 8, cols, values);
  if (gate != nullptr) {
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      bits |= (values[j] != 0 ? 1U : 0U) << j;
    }
    gate[row * gate_stride + group] = static_cast<uint8_t>(bits);
  }
}

// dx *= activation' * dropout mask. relu: `saved` is its output, 0 where no gradient flows.
template <Activation kActivation, bool kVector>
__global__ void activate_backward_kernel(Rows dx, Rows saved, int64_t rows, int64_t cols, DropoutArguments arguments) {
  const DropoutMask mask(arguments);
  const int64_t groups = (cols + 7) / 8;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * groups) {
    return;
  }
  const int64_t row = i / groups, group = i % groups;
  float gradient[8], kept[8];
  load8<kVector>(gradient, dx.row(row), group * 8, cols);
  if constexpr (kActivation != Activation::none) {
    load8<kVector>(kept, saved.row(row), group * 8, cols);
  }
  if (mask.on() && kActivation != Activation::relu) {
    mask.apply(gradient, row, static_cast<uint32_t>(group));
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if constexpr (kActivation == Activation::relu) {
      gradient[j] = kept[j] != 0 ? gradient[j] * mask.scale() : 0.0F;
    } else if constexpr (kActivation != Activation::none) {
      gradient[j] *= slope<kActivation>(kept[j]);
    }
  }
  store8<kVector>(dx.row(row), group * 8, cols, gradient);
}

template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::none:
      return body.template operator()<Activation::none>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::gelu:
      return body.template operator()<Activation::gelu>();
    case Activation::swish:
      return body.template operator()<Activation::swish>();
  }
}

unsigned blocks_for(const View& view) {
  return static_cast<unsigned>(divide_up(view.rows * divide_up(view.cols, 8), kThreads));
}

void launch_activation(Activation activation, const View& y, const View& x, const View& gate, const Dropout& dropout,
                       cudaStream_t stream) {
  const bool vectors = vectors_of_8(y) && vectors_of_8(x);
  with_activation(activation, [&]<Activation kActivation>() {
    const auto kernel = vectors ? activate_kernel<kActivation, true> : activate_kernel<kActivation, false>;
    kernel<<<blocks_for(y), kThreads, 0, stream>>>(Rows(y), Rows(x), data<uint8_t>(gate), gate.stride * 4, y.rows,
                                                   y.cols, DropoutArguments(dropout));
  });
  check_launch("activate_kernel");
}

void launch_activation_backward(const View& dx, const BackwardEpilogue& epilogue, cudaStream_t stream) {
  const bool vectors = vectors_of_8(dx) && vectors_of_8(epilogue.saved);
  with_activation(epilogue.activation, [&]<Activation kActivation>() {
    const auto kernel =
        vectors ? activate_backward_kernel<kActivation, true> : activate_backward_kernel<kActivation, false>;
    kernel<<<blocks_for(dx), kThreads, 0, stream>>>(Rows(dx), Rows(epilogue.saved), dx.rows, dx.cols,
                                                    DropoutArguments(epilogue.dropout));
  });
  check_launch("activate_backward_kernel");
}

void require_bf16(const View& view) {
  require(view.dtype == DType::bf16, "the GPU computes in bf16, not in {}", name_of(view.dtype));
}

GemmEpilogue forward_epilogue(bool bias, bool relu) {
  if (relu) {
    return bias ? GemmEpilogue::relu_bias : GemmEpilogue::relu;
  }
  return bias ? GemmEpilogue::bias : GemmEpilogue::none;
}

}  // namespace

void CudaBackend::linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) {
  require_bf16(y);
  if (y.size() == 0) {
    return;
  }
  const bool curved = epilogue.activation == Activation::gelu || epilogue.activation == Activation::swish;
  const View product = curved && !epilogue.pre.empty() ? epilogue.pre : y;
  gemm_->run({.c = product,
              .a = x,
              .b = w,
              .transpose_b = true,
              .epilogue = forward_epilogue(!epilogue.bias.empty(), epilogue.activation == Activation::relu),
              .bias = epilogue.bias});
  if (!epilogue.pre.empty() && !curved) {
    fail("`pre` is kept for gelu and swish only");
  }
  const View gate = epilogue.activation == Activation::relu ? epilogue.gate : View{};
  if (curved || DropoutArguments(epilogue.dropout).on() || !gate.empty()) {
    launch_activation(curved ? epilogue.activation : Activation::none, y, product, gate, epilogue.dropout, stream_);
  }
}

void CudaBackend::linear_backward_input(const View& dx, const View& dy, const View& w, const BackwardEpilogue& epilogue,
                                        bool accumulate) {
  require_bf16(dx);
  if (dx.size() == 0) {
    return;
  }
  const DropoutArguments dropout(epilogue.dropout);
  const bool masked = epilogue.activation != Activation::none || dropout.on();
  require(!(masked && accumulate), "a masked gradient is written, not added to");
  const bool gated = epilogue.activation == Activation::relu && !epilogue.gate.empty() && dx.cols % 128 == 0 &&
                     epilogue.gate.stride % 4 == 0 && reinterpret_cast<uintptr_t>(epilogue.gate.data) % 16 == 0;
  gemm_->run({.c = dx,
              .a = dy,
              .b = w,
              .alpha = gated ? dropout.scale : 1.0F,
              .beta = accumulate ? 1.0F : 0.0F,
              .epilogue = gated ? GemmEpilogue::gated : GemmEpilogue::none,
              .gate = epilogue.gate});
  if (masked && !gated) {
    launch_activation_backward(dx, epilogue, stream_);
  }
}

}  // namespace tandem
