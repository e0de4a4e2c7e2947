// Counter-based random numbers: Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011). Randomness is a function of its arguments, not a state: nothing to save, the same on every
// device and for every split of the work.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::inline core {

using Philox = std::array<uint32_t, 4>;

constexpr Philox philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 7; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1) with 24 random bits.
constexpr float uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A stream of numbers for host work that is naturally sequential (shuffles, initial weights).
class PhiloxStream {
 public:
  // The same (key, purpose, index) always gives the same numbers.
  PhiloxStream(uint64_t key, uint32_t purpose, uint32_t index = 0) : key_(key), purpose_(purpose), index_(index) {}

  uint32_t next() {
    if (used_ == 4) {
      block_ = philox(key_, static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), purpose_, index_);
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }

  // Uniform in [0, bound), without bias.
  uint64_t below(uint64_t bound) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value = 0;
    do {
      value = (uint64_t{next()} << 32) | next();
    } while (value >= limit);
    return value % bound;
  }

 private:
  uint64_t key_;
  uint32_t purpose_, index_;
  uint64_t counter_ = 0;
  Philox block_{};
  unsigned used_ = 4;
};

}  // namespace tandem::inline core
