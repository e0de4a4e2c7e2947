// Random numbers of four rows at a time, for a kernel whose arithmetic they would dominate.
#pragma once

#include "backend/cuda/dropout.cuh"

namespace tandem::cuda {

// DropoutMask::lanes of four rows at once, with the keys of all rounds at hand.
class PhiloxRows {
 public:
  __device__ explicit PhiloxRows(const DropoutArguments& arguments) : place_(arguments.place) {
    uint64_t seed = 0;
    if (arguments.threshold > 0) {
      seed = arguments.state->seed;
      step_ = arguments.state->step;
      first_ = arguments.target ? arguments.state->first_target : arguments.state->first_source;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      keys_[round][0] = static_cast<uint32_t>(seed) + round * 0x9E3779B9U;
      keys_[round][1] = static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85U;
      asm volatile("" : "+r"(keys_[round][0]), "+r"(keys_[round][1]));  // kept, not computed again
    }
  }

  // Of the rows row, row + 4, row + 8 and row + 12.
  __device__ void lanes(uint32_t (&c)[4][4], int row, int group) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c[i][0] = group;
      c[i][1] = first_ + row + 4 * i;
      c[i][2] = place_;
      c[i][3] = step_;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (auto& own : c) {
        uint32_t low0, high0, low1, high1;
        multiply_wide(low0, high0, own[0], 0xD2511F53);
        multiply_wide(low1, high1, own[2], 0xCD9E8D57);
        own[0] = high1 ^ own[1] ^ keys_[round][0];
        own[1] = low1;
        own[2] = high0 ^ own[3] ^ keys_[round][1];
        own[3] = low0;
      }
    }
  }

 private:
  static constexpr int kRounds = 7;

  __device__ static void multiply_wide(uint32_t& low, uint32_t& high, uint32_t a, uint32_t b) {
    asm("{\n"
        ".reg .u64 product;\n"
        "mul.wide.u32 product, %2, %3;\n"
        "mov.b64 {%0, %1}, product;\n"
        "}"
        : "=r"(low), "=r"(high)
        : "r"(a), "r"(b));
  }

  uint32_t keys_[kRounds][2];
  uint32_t place_, step_ = 0, first_ = 0;
};

}  // namespace tandem::cuda
