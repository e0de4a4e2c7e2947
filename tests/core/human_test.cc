#include "core/human.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::inline core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Human, Durations) {
  EXPECT_EQ(human_duration(0), "0 s");
  EXPECT_EQ(human_duration(59.4), "59 s");
  EXPECT_EQ(human_duration(59.6), "1 m 00 s");
  EXPECT_EQ(human_duration(200), "3 m 20 s");
  EXPECT_EQ(human_duration(11 * 3600 + 125), "11 h 02 m");
  EXPECT_EQ(human_duration(2 * 86400 + 4 * 3600), "2 d 04 h");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(kNan), "?");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "?");
}

TEST(Human, CountsAndBytes) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(950.4), "950");
  EXPECT_EQ(human_count(999.7), "1.00k");
  EXPECT_EQ(human_count(12'345), "12.3k");
  EXPECT_EQ(human_count(99'960), "100k");
  EXPECT_EQ(human_count(4'524'868), "4.52M");
  EXPECT_EQ(human_bytes(730'570'768), "731 MB");
  EXPECT_EQ(human_bytes(12), "12 B");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(50'000), "50,000");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
}

}  // namespace
}  // namespace tandem::inline core
