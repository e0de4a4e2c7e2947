// Dropout masks on the device: the same function as backend/cpu/dropout.h.
//
// The 16-bit lane of a column is lane (column % 8) of philox(seed, column / 8, token, place, step); lane j is the low
// half (j even) or the high half (j odd) of word j / 2. A column is kept iff its lane >= round(rate * 65536).
#pragma once

#include <cmath>

#include "backend/backend.h"
#include "backend/cuda/half.cuh"
#include "core/philox.h"

namespace tandem::backend::cuda {

// A dropout as a kernel parameter.
struct DropoutArguments {
  const StepState* state = nullptr;  // null: no dropout
  uint32_t threshold = 0;            // out of 65536
  uint32_t place = 0;
  bool target = false;
  float scale = 1;  // factor of the kept values

  DropoutArguments() = default;
  explicit DropoutArguments(const Dropout& dropout) {
    threshold = static_cast<uint32_t>(std::lround(static_cast<double>(dropout.rate) * 65536));
    if (threshold > 0) {
      state = dropout.state;
      place = dropout.place;
      target = dropout.side == Side::target;
      scale = threshold < 65536 ? static_cast<float>(1.0 / (1.0 - threshold / 65536.0)) : 0.0F;
    }
  }
  bool on() const { return threshold > 0; }
};

// Whether quick_keep_pair of fused_epilogue.cuh is right for this threshold.
template <class H>
__host__ __device__ constexpr bool quick_keep_possible(uint32_t threshold) {
  return ((threshold - 1) & 0x7FFF) - 1 < Half<H>::kInfinity;
}

// Keeps the numbers of a pair whose 16-bit lanes reach the limit (threshold << 16) and replaces the others by 0. It is
// wrong for rate 1, but there the scale is 0 anyway.
__device__ inline uint32_t keep_pair(uint32_t pair, uint32_t lanes, uint32_t limit) {
  const uint32_t low = lanes << 16 >= limit ? pair : pair & 0xFFFF0000;
  return lanes >= limit ? low : low & 0x0000FFFF;
}

// Without this, the compiler adds a zero to the upper half.
__device__ inline void multiply_wide(uint32_t& low, uint32_t& high, uint32_t a, uint32_t b) {
  asm("{\n"
      ".reg .u64 product;\n"
      "mul.wide.u32 product, %2, %3;\n"
      "mov.b64 {%0, %1}, product;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(a), "r"(b));
}

// The same numbers as philox of core/philox.h.
__device__ inline Philox philox_fast(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    uint32_t low0, high0, low1, high1;
    multiply_wide(low0, high0, c0, 0xD2511F53);
    multiply_wide(low1, high1, c2, 0xCD9E8D57);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// The mask function with the step's numbers read from device memory, once per thread.
class DropoutMask {
 public:
  __device__ explicit DropoutMask(const DropoutArguments& arguments)
      : threshold_(arguments.threshold), place_(arguments.place), scale_(arguments.scale) {
    if (threshold_ > 0) {
      const StepState& state = *arguments.state;
      seed_ = state.seed;
      step_ = state.step;
      first_ = arguments.target ? state.first_target : state.first_source;
    }
  }

  __device__ bool on() const { return threshold_ > 0; }
  __device__ float scale() const { return scale_; }
  __device__ uint32_t limit() const { return threshold_ << 16; }  // used by keep_pair

  // Four words = eight 16-bit lanes for the columns [8 * group, 8 * group + 8) of a row.
  __device__ Philox lanes(int64_t row, uint32_t group, uint32_t head = 0) const {
    return philox_fast(seed_, group, first_ + static_cast<uint32_t>(row), place_ + head, step_);
  }
  // These are wrong for rate 1, but there the scale is 0 anyway.
  __device__ bool keeps_low(uint32_t word) const { return word << 16 >= limit(); }
  __device__ bool keeps_high(uint32_t word) const { return word >= limit(); }

  // values *= 0 or scale for the eight columns of a group. Call this only if on().
  __device__ void apply(float (&values)[8], int64_t row, uint32_t group, uint32_t head = 0) const {
    apply(values, lanes(row, group, head));
  }
  // The same with lanes that were computed before.
  __device__ void apply(float (&values)[8], const Philox& words) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = keeps_low(words[i]) ? values[2 * i] * scale_ : 0.0F;
      values[2 * i + 1] = keeps_high(words[i]) ? values[2 * i + 1] * scale_ : 0.0F;
    }
  }

 private:
  uint32_t threshold_, place_;
  float scale_;
  uint64_t seed_ = 0;
  uint32_t step_ = 0, first_ = 0;
};

// DropoutMask::lanes of four rows at once. The part of the first three of the seven rounds that depends on the column
// alone is computed once for many rows.
class PhiloxRows {
 public:
  __device__ explicit PhiloxRows(const DropoutArguments& arguments) {
    uint64_t seed = 0;
    uint32_t step = 0;
    if (arguments.threshold > 0) {
      seed = arguments.state->seed;
      step = arguments.state->step;
      first_ = arguments.target ? arguments.state->first_target : arguments.state->first_source;
    }
    uint32_t keys[kRounds][2];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      keys[round][0] = static_cast<uint32_t>(seed) + round * 0x9E3779B9U;
      keys[round][1] = static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85U;
    }
    uint32_t low, high;
    multiply_wide(low, high, arguments.place, kFactor1);
    of_row_ = high ^ keys[0][0];
    of_column_[0] = step ^ keys[0][1];
    of_column_[1] = low ^ keys[1][0];
    of_column_[2] = keys[1][1];
    of_column_[3] = keys[2][0];
    of_column_[4] = keys[2][1];
#pragma unroll
    for (int round = 0; round < kLastRounds; ++round) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        keys_[round][i] = keys[kRounds - kLastRounds + round][i];
        asm volatile("" : "+r"(keys_[round][i]));  // kept in a register, not computed again
      }
    }
  }

  // The part that depends on the column, for eight columns.
  struct Column {
    uint32_t words[4];
  };
  __device__ Column column(int group) const {
    uint32_t low0, high0, low1, high1, low2, high2;
    multiply_wide(low0, high0, group, kFactor0);
    multiply_wide(low1, high1, high0 ^ of_column_[0], kFactor1);
    multiply_wide(low2, high2, high1 ^ of_column_[1], kFactor0);
    return {low0 ^ of_column_[2], low1 ^ of_column_[3], high2 ^ of_column_[4], low2};
  }

  // The lanes of the rows row, row + 4, row + 8 and row + 12.
  __device__ void lanes(uint32_t (&c)[4][4], int row, const Column& column) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t low, high;
      multiply_wide(low, high, of_row_ ^ (first_ + row + 4 * i), kFactor0);
      multiply_wide(c[i][1], c[i][0], high ^ column.words[0], kFactor1);
      c[i][0] ^= column.words[1];
      c[i][2] = low ^ column.words[2];
      c[i][3] = column.words[3];
    }
#pragma unroll
    for (int round = 0; round < kLastRounds; ++round) {
#pragma unroll
      for (auto& own : c) {
        uint32_t low0, high0, low1, high1;
        multiply_wide(low0, high0, own[0], kFactor0);
        multiply_wide(low1, high1, own[2], kFactor1);
        own[0] = high1 ^ own[1] ^ keys_[round][0];
        own[1] = low1;
        own[2] = high0 ^ own[3] ^ keys_[round][1];
        own[3] = low0;
      }
    }
  }

 private:
  static constexpr int kRounds = 7, kLastRounds = 4;
  static constexpr uint32_t kFactor0 = 0xD2511F53, kFactor1 = 0xCD9E8D57;

  uint32_t first_ = 0, of_row_, of_column_[5];
  uint32_t keys_[kLastRounds][2];
};

}  // namespace tandem::backend::cuda
