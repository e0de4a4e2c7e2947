// Random numbers of four rows at a time, for a kernel whose arithmetic they would dominate.
#pragma once

#include "backend/cuda/dropout.cuh"

namespace tandem::backend::cuda {

// DropoutMask::lanes of four rows at once. What the first three of the seven rounds make of the column alone is
// computed once for many rows.
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
        asm volatile("" : "+r"(keys_[round][i]));  // kept, not computed again
      }
    }
  }

  // Of eight columns.
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

  // Of the rows row, row + 4, row + 8 and row + 12.
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
