// Functions that the compiler turns into vector code when a loop over contiguous memory calls them: no branches, no
// tables, no library calls.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem {

// e^x within about 1e-7 relative. Below -86.98 (where results are nearly denormal) it is 0; above 88.7 infinity; NaN
// stays NaN.
inline float fast_exp(float x) {
  constexpr float kLowest = -86.98F, kHighest = 88.72F;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits of the mantissa
  const float bounded = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = bounded * 0x1.715476p0F + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;  // bounded - n ln 2, ln 2 in two parts
  float p = 1.9875691500e-4F;                                          // (e^r - 1 - r) / r^2, from the Cephes library
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // 2^n in two factors, since n = 128 is needed just below the overflow.
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kRound);
  const float half = __builtin_bit_cast(float, (exponent + 126) << 23);
  const float result = p * half * 2.0F;
  return x < kLowest ? 0.0F : (x > kHighest ? __builtin_inff() : result);
}

inline double fast_exp(double x) { return std::exp(x); }

}  // namespace tandem
