// Functions without branches, tables or library calls, so that they run on vectors and in loops that the compiler
// vectorises.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::backend {

// e^x within about 1.2e-7 relative. Below -86.99 (where results are nearly denormal) it is 0; above 88.72 infinity;
// NaN stays NaN. F is float or a vector of floats, U the unsigned type of the same shape.
template <class F, class U>
inline __attribute__((always_inline)) F exp_of(F x) {
  const F lowest = F{} - 87.3F;     // n = -126: 2^(n - 1) below has the bits of 0
  const F highest = F{} + 89.4F;    // n = 129: 2^(n - 1) has the bits of infinity
  const F round = F{} + 0x1.8p23F;  // adding it leaves the nearest integer in the low bits of the mantissa
  const F above = x < lowest ? lowest : x;
  const F bounded = above > highest ? highest : above;
  const F shifted = bounded * 0x1.715476p0F + round;
  const F n = shifted - round;
  const F r = (bounded - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;  // bounded - n ln 2, ln 2 in two parts
  F p = F{} + 1.9875691500e-4F;                                    // (e^r - 1 - r) / r^2, from the Cephes library
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
  const U exponent = __builtin_bit_cast(U, shifted) - __builtin_bit_cast(U, round);
  return (p + p) * __builtin_bit_cast(F, (exponent + 126) << 23);
}

inline float fast_exp(float x) { return exp_of<float, uint32_t>(x); }
inline double fast_exp(double x) { return std::exp(x); }

}  // namespace tandem::backend
