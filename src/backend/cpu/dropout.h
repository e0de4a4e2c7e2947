// Dropout masks: a function of (seed, step, place, token, column), see Dropout in backend/operands.h.
//
// The 16-bit lane of a column is lane (column % 8) of philox(seed, column / 8, token, place, step); lane j is the low
// half (j even) or the high half (j odd) of word j / 2. A column is kept iff its lane >= round(rate * 65536).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backend/backend.h"
#include "core/philox.h"

namespace tandem::backend {

using U64x4 = uint64_t __attribute__((vector_size(32)));

inline U64x4 multiply_low_halves(U64x4 a, U64x4 b) {
#if defined(__AVX2__)
  return reinterpret_cast<U64x4>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& dropout) {
    threshold_ = static_cast<uint32_t>(std::lround(static_cast<double>(dropout.rate) * 65536));
    if (threshold_ > 0) {
      const StepState& state = *dropout.state;
      seed_ = state.seed;
      step_ = state.step;
      place_ = dropout.place;
      first_ = dropout.side == Side::source ? state.first_source : state.first_target;
      scale_ = threshold_ < 65536 ? 1.0 / (1.0 - threshold_ / 65536.0) : 0.0;
    }
  }

  bool on() const { return threshold_ > 0; }
  double scale() const { return scale_; }  // factor of the kept values

  // factors[c - begin] = 0 (dropped) or scale() for the columns c in [begin, begin + count) of a row. begin must be a
  // multiple of 8. `head` is added to the place. Call this only if on().
  template <class A>
  void fill(A* factors, int64_t row, int64_t begin, int64_t count, uint32_t head = 0) const {
    constexpr int64_t kMost = 64;  // columns computed at once, in vector registers
    const A kept = static_cast<A>(scale_);
    const int32_t threshold = static_cast<int32_t>(threshold_);
    const uint32_t token = first_ + static_cast<uint32_t>(row);
    alignas(32) uint16_t lanes[kMost];
    for (int64_t done = 0; done < count; done += kMost) {
      const uint32_t group = static_cast<uint32_t>((begin + done) / 8);
      const int64_t part = std::min(kMost, count - done);
      part > 32 ? random_lanes<2>(lanes, group, token, place_ + head)
                : random_lanes<1>(lanes, group, token, place_ + head);
      A* to = factors + done;
      for (int64_t i = 0; i < part; ++i) {
        to[i] = static_cast<int32_t>(lanes[i]) >= threshold ? kept : A{0};
      }
    }
  }

 private:
  template <int kVectors>
  void random_lanes(uint16_t* lanes, uint32_t group, uint32_t token, uint32_t place) const;

  uint32_t threshold_ = 0;  // 65536 = drop everything
  double scale_ = 1;
  uint64_t seed_ = 0;
  uint32_t step_ = 0, place_ = 0, first_ = 0;
};

// philox() for 4 * kVectors groups of columns from `group` on, eight 16-bit lanes each, in the order of the columns.
// The state's words are the low halves of 64-bit lanes; their high halves hold bits that the multiplications ignore.
template <int kVectors>
void DropoutMask::random_lanes(uint16_t* lanes, uint32_t group, uint32_t token, uint32_t place) const {
  U64x4 c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    c0[i] = U64x4{0, 1, 2, 3} + (uint64_t{group} + 4 * static_cast<uint64_t>(i));
    c1[i] = U64x4{} + token;
    c2[i] = U64x4{} + place;
    c3[i] = U64x4{} + step_;
  }
  uint32_t k0 = static_cast<uint32_t>(seed_);
  uint32_t k1 = static_cast<uint32_t>(seed_ >> 32);
#pragma GCC unroll 7
  for (int round = 0; round < 7; ++round) {
    for (int i = 0; i < kVectors; ++i) {
      const U64x4 product0 = multiply_low_halves(c0[i], U64x4{} + 0xD2511F53);
      const U64x4 product1 = multiply_low_halves(c2[i], U64x4{} + 0xCD9E8D57);
      c0[i] = (product1 >> 32) ^ c1[i] ^ k0;
      c1[i] = product1;
      c2[i] = (product0 >> 32) ^ c3[i] ^ k1;
      c3[i] = product0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kVectors; ++i) {
    const U64x4 low = (c0[i] & 0xFFFFFFFF) | (c1[i] << 32);   // columns 0 to 3 of four groups
    const U64x4 high = (c2[i] & 0xFFFFFFFF) | (c3[i] << 32);  // columns 4 to 7
    const U64x4 ordered[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                              __builtin_shufflevector(low, high, 2, 6, 3, 7)};
    std::memcpy(lanes + ptrdiff_t{32} * i, ordered, sizeof ordered);
  }
}

}  // namespace tandem::backend
