// Activation functions on the device; relu is done in the product's epilogue.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend::cuda {

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }
__device__ inline float normal_cdf(float x) { return 0.5F * (1.0F + erff(x * 0.70710678F)); }

template <Activation kActivation>
__device__ float activate(float x) {
  if constexpr (kActivation == Activation::gelu) {
    return x * normal_cdf(x);
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
    return normal_cdf(x) + x * 0.39894228F * __expf(-0.5F * x * x);
  } else if constexpr (kActivation == Activation::swish) {
    const float s = sigmoid(x);
    return s * (1.0F + x * (1.0F - s));
  } else {
    return 1.0F;
  }
}

// Calls body.operator()<the activation>().
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

}  // namespace tandem::backend::cuda
