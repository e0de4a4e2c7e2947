#include "core/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::inline core {
namespace {

// The known answers of the Random123 library for philox4x32 with 7 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0, 0, 0), (Philox{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox(0xffffffffffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff),
            (Philox{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
            (Philox{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Philox, UniformIsInTheUnitInterval) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_EQ(uniform(0x80000000), 0.5F);
  EXPECT_LT(uniform(0xffffffff), 1.0F);
  double sum = 0;
  PhiloxStream stream(1, 2, 3);
  for (int i = 0; i < 100000; ++i) {
    sum += static_cast<double>(uniform(stream.next()));
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Philox, StreamsAreFunctionsOfTheirArguments) {
  PhiloxStream stream(5, 6, 7), same(5, 6, 7), other(5, 6, 8);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const uint32_t value = stream.next();
    EXPECT_EQ(value, same.next());
    equal += value == other.next() ? 1 : 0;
  }
  EXPECT_LT(equal, 2);
}

TEST(Philox, BelowReachesEveryValueAndNoOther) {
  PhiloxStream stream(9, 0);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(stream.below(7));
  }
  EXPECT_EQ(seen.size(), 7U);
  EXPECT_EQ(*seen.rbegin(), 6U);
}

}  // namespace
}  // namespace tandem::inline core
