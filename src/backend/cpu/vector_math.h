// Functions without branches, tables or library calls, so that they run on vectors and in loops that the compiler
// vectorises.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem {

// e^x within about 1.2e-7 relative. Below -86.98 (where results are nearly denormal) it is 0; above 88.72 infinity;
// NaN stays NaN. F is float or a vector of floats, U the unsigned type of the same shape.
template <class F, class U>
inline __attribute__((always_inline)) F exp_of(F x) {
  const F lowest = F{} - 86.98F;
  const F highest = F{} + 88.72F;
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
  p = p * r * r + r + 1.0F;
  // 2^(n - 1) times 2, since n = 128 is needed just below the overflow.
  const U exponent = __builtin_bit_cast(U, shifted) - __builtin_bit_cast(U, round);
  const F result = p * __builtin_bit_cast(F, (exponent + 126) << 23) * 2.0F;
  const F finite = x > highest ? F{} + __builtin_inff() : result;
  return x < lowest ? F{} : finite;
}

inline float fast_exp(float x) { return exp_of<float, uint32_t>(x); }
inline double fast_exp(double x) { return std::exp(x); }

}  // namespace tandem
