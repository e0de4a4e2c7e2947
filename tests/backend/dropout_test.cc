#include "backend/cpu/dropout.h"

#include <numeric>

#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

const StepState kState{.seed = 0x123456789abcdef0, .step = 17, .first_source = 100, .first_target = 900};

std::vector<float> mask_of(const Dropout& dropout, int64_t row, int64_t begin, int64_t count, uint32_t head = 0) {
  std::vector<float> factors(static_cast<size_t>(count), -1.0F);
  DropoutMask(dropout).fill(factors.data(), row, begin, count, head);
  return factors;
}

// The contract, written out one column at a time.
TEST(Dropout, MaskIsTheDocumentedFunction) {
  const float rate = 0.3F;
  const uint32_t threshold = 19661;  // round(0.3 * 65536)
  const Dropout dropout{rate, 41, Side::target, &kState};
  for (const int64_t cols : {1, 7, 8, 31, 32, 33, 63, 64, 65, 200}) {
    const std::vector<float> factors = mask_of(dropout, 5, 0, cols, 3);
    for (int64_t c = 0; c < cols; ++c) {
      const Philox words = philox(kState.seed, static_cast<uint32_t>(c / 8), 905, 44, 17);
      const uint32_t lane = (words[static_cast<size_t>(c % 8 / 2)] >> (c % 2 * 16)) & 0xFFFF;
      const float expected = lane >= threshold ? 1.0F / (1.0F - 19661.0F / 65536.0F) : 0.0F;
      ASSERT_FLOAT_EQ(factors[static_cast<size_t>(c)], expected) << "column " << c << " of " << cols;
    }
  }
}

TEST(Dropout, PartsOfARowAreTheRow) {
  const Dropout dropout{0.1F, 3, Side::source, &kState};
  const std::vector<float> whole = mask_of(dropout, 9, 0, 300);
  for (const int64_t begin : {0, 8, 64, 72, 256}) {
    const std::vector<float> part = mask_of(dropout, 9, begin, 300 - begin);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

TEST(Dropout, KeepsItsRateAndTheMean) {
  for (const float rate : {0.1F, 0.3F, 0.5F, 0.9F}) {
    const Dropout dropout{rate, 1, Side::source, &kState};
    double kept = 0, sum = 0;
    constexpr int64_t kRows = 200, kCols = 1000;
    for (int64_t row = 0; row < kRows; ++row) {
      for (const float factor : mask_of(dropout, row, 0, kCols)) {
        kept += factor > 0 ? 1 : 0;
        sum += static_cast<double>(factor);
      }
    }
    EXPECT_NEAR(kept / (kRows * kCols), 1 - rate, 0.005) << rate;
    EXPECT_NEAR(sum / (kRows * kCols), 1, 0.02) << rate;
  }
}

TEST(Dropout, MasksDifferByPlaceStepTokenAndSeed) {
  const Dropout base{0.5F, 1, Side::source, &kState};
  const std::vector<float> mask = mask_of(base, 0, 0, 256);
  StepState next = kState;
  next.step += 1;
  StepState reseeded = kState;
  reseeded.seed += 1;
  for (const std::vector<float>& other :
       {mask_of(base, 1, 0, 256), mask_of(base, 0, 0, 256, 1), mask_of({0.5F, 1, Side::target, &kState}, 0, 0, 256),
        mask_of({0.5F, 1, Side::source, &next}, 0, 0, 256), mask_of({0.5F, 1, Side::source, &reseeded}, 0, 0, 256)}) {
    const auto same = std::inner_product(mask.begin(), mask.end(), other.begin(), 0, std::plus<>(),
                                         [](float a, float b) { return a == b ? 1 : 0; });
    EXPECT_NEAR(same, 128, 45);
  }
}

// A micro-batch that begins at token 5 sees the masks that the whole batch has from row 5 on.
TEST(Dropout, TokenCountsFromTheGlobalBatch) {
  StepState whole = kState, part = kState;
  whole.first_source = 0;
  part.first_source = 5;
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(mask_of({0.3F, 2, Side::source, &part}, row, 0, 96),
              mask_of({0.3F, 2, Side::source, &whole}, row + 5, 0, 96));
  }
}

TEST(Dropout, RateZeroIsOffAndRateOneDropsAll) {
  EXPECT_FALSE(DropoutMask(Dropout{}).on());
  const std::vector<float> mask = mask_of({1.0F, 2, Side::source, &kState}, 0, 0, 64);
  EXPECT_TRUE(std::all_of(mask.begin(), mask.end(), [](float factor) { return factor == 0; }));
}

}  // namespace
}  // namespace tandem::backend
