// Dropout masks: a function of (seed, step, place, token, column), see Dropout in backend.h.
//
// The 16-bit lane of a column is lane (column % 8) of philox(seed, column / 8, token, place, step), where lane j is
// the low half (j even) or the high half (j odd) of word j / 2. A column is kept iff its lane >= round(rate * 65536).
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "core/philox.h"

namespace tandem {

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
  double scale() const { return scale_; }  // what a kept value is multiplied by

  // factors[c - begin] = 0 (dropped) or scale() for the columns c in [begin, begin + count) of a row. begin must be a
  // multiple of 8. `head` is added to the place. Only call where on().
  template <class A>
  void fill(A* factors, int64_t row, int64_t begin, int64_t count, uint32_t head = 0) const {
    const A kept = static_cast<A>(scale_);
    uint16_t lanes[kBlock * 8];
    for (int64_t done = 0; done < count; done += kBlock * 8) {
      random_lanes(lanes, static_cast<uint32_t>((begin + done) / 8), first_ + static_cast<uint32_t>(row),
                   place_ + head);
      const int64_t part = std::min<int64_t>(kBlock * 8, count - done);
      A* to = factors + done;
      for (int64_t i = 0; i < part; ++i) {
        to[i] = lanes[i] >= threshold_ ? kept : A{0};
      }
    }
  }

 private:
  static constexpr int kBlock = 8;  // Philox calls made side by side, in vector registers

  void random_lanes(uint16_t* lanes, uint32_t group, uint32_t token, uint32_t place) const;

  uint32_t threshold_ = 0;  // 65536 = drop everything
  double scale_ = 1;
  uint64_t seed_ = 0;
  uint32_t step_ = 0, place_ = 0, first_ = 0;
};

// philox() for the groups of columns [group, group + kBlock), eight 16-bit lanes each, in the order of the columns.
inline void DropoutMask::random_lanes(uint16_t* lanes, uint32_t group, uint32_t token, uint32_t place) const {
  uint32_t c0[kBlock], c1[kBlock], c2[kBlock], c3[kBlock];
  for (uint32_t i = 0; i < kBlock; ++i) {
    c0[i] = group + i;
    c1[i] = token;
    c2[i] = place;
    c3[i] = step_;
  }
  uint32_t k0 = static_cast<uint32_t>(seed_);
  uint32_t k1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 7; ++round) {
    for (int i = 0; i < kBlock; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53} * c0[i];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(product1);
      c2[i] = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(product0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kBlock; ++i) {
    const uint32_t words[4] = {c0[i], c1[i], c2[i], c3[i]};
    for (int j = 0; j < 8; ++j) {
      lanes[i * 8 + j] = static_cast<uint16_t>(words[j / 2] >> (j % 2 * 16));
    }
  }
}

}  // namespace tandem
