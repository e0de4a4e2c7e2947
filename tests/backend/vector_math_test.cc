#include "backend/cpu/simd.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

TEST(VectorMath, ExpIsCloseOverItsWholeRange) {
  double worst = 0;
  for (double x = -86.9; x < 88.7; x += 0.0037) {
    const float at = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(at));
    worst = std::max(worst, std::fabs(static_cast<double>(fast_exp(at)) - expected) / expected);
  }
  EXPECT_GT(worst, 0);
  EXPECT_LT(worst, 2e-7);
}

TEST(VectorMath, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_EQ(fast_exp(-infinity), 0.0F);
  EXPECT_EQ(fast_exp(-1e30F), 0.0F);
  EXPECT_EQ(fast_exp(-100.0F), 0.0F);
  EXPECT_EQ(fast_exp(infinity), infinity);
  EXPECT_EQ(fast_exp(89.0F), infinity);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, VectorsGiveTheScalarsBits) {
  std::vector<float> x(64);
  testing::fill_random(std::span(x), 4);
  x[3] = -std::numeric_limits<float>::infinity();
  x[9] = 200;
  for (size_t i = 0; i < x.size(); i += 8) {
    const Vec<float> result = fast_exp(load(x.data() + i));
    for (size_t j = 0; j < 8; ++j) {
      EXPECT_EQ(result[j], fast_exp(x[i + j]));
    }
  }
}

TEST(VectorMath, Bf16VectorsRoundLikeTheScalarType) {
  std::vector<float> x(8);
  testing::fill_random(std::span(x), 5);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  x[2] = 1.00390625F;
  x[3] = -std::numeric_limits<float>::infinity();
  x[4] = 3.4e38F;
  for (const int64_t count : {1, 5, 8}) {
    std::vector<bf16> stored(9);
    store(stored.data(), load(x.data()), Part{count});
    const Vec<float> rounded = round_to<bf16>(load(x.data()));
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(i);
      EXPECT_EQ(stored[at].bits, bf16(x[at]).bits);
      EXPECT_EQ(bf16(rounded[i]).bits, bf16(x[at]).bits);
    }
    EXPECT_EQ(stored[static_cast<size_t>(count)].bits, 0);
  }
}

}  // namespace
}  // namespace tandem::backend
