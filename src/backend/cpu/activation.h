// Activation functions and their derivatives, on vectors of lanes (backend/cpu/simd.h).
#pragma once

#include <cmath>

#include "backend/backend.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

// The normal distribution's cumulative function, 1/2 erfc(-x / sqrt 2); f32 within about 3e-7 relative.
inline Vec<float> normal_cdf(Vec<float> x) {
  const Vec<float> z = (x < 0.0F ? -x : x) * 0.70710678F;
  const Vec<float> t = 1.0F / (1.0F + 0.5F * z);
  // ln(erfc(z) / t) + z^2 as a polynomial in t (Chebyshev fit, Numerical Recipes 6.2, relative error 1.2e-7).
  Vec<float> p = splat(0.17087277F);
  p = p * t - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  const Vec<float> tail = 0.5F * t * fast_exp(p - z * z);
  return x < 0.0F ? tail : 1.0F - tail;
}
inline Vec<double> normal_cdf(Vec<double> x) {
  for (int64_t i = 0; i < kLanes<double>; ++i) {
    x[i] = 0.5 * std::erfc(-x[i] * 0.7071067811865475244);
  }
  return x;
}

template <class A>
inline __attribute__((always_inline)) Vec<A> activate(Vec<A> x, Activation activation) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return x < A{0} ? splat(A{0}) : x;  // NaN stays NaN
    case Activation::gelu:
      return x * normal_cdf(x);
    case Activation::swish:
      return x / (A{1} + fast_exp(-x));
  }
  return x;
}

// The derivative at the activation's argument; relu's value will do as well: it is 0 exactly where no gradient flows.
template <class A>
inline __attribute__((always_inline)) Vec<A> activation_slope(Vec<A> x, Activation activation) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return x > A{0} ? splat(A{1}) : splat(A{0});
    case Activation::gelu:
      return normal_cdf(x) + x * fast_exp(A(-0.5) * x * x) * A(0.3989422804014326779);
    case Activation::swish: {
      const Vec<A> sigmoid = A{1} / (A{1} + fast_exp(-x));
      return sigmoid + x * sigmoid * (A{1} - sigmoid);
    }
  }
  return splat(A{1});
}

}  // namespace tandem::backend
