#include "data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/error.h"

namespace tandem::data {
namespace {

TrainStep numbered(int64_t number) {
  TrainStep step;
  step.pairs = number;
  return step;
}

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST(Prefetch, keeps_the_order) {
  int64_t made = 0;
  Prefetcher prefetcher([&] { return numbered(made++); });
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(prefetcher.next().pairs, i);
  }
}

TEST(Prefetch, prepares_no_more_than_its_depth) {
  std::atomic<int64_t> made = 0;
  Prefetcher prefetcher([&] { return numbered(made++); }, 3);
  for (int i = 0; i < 1000 && made < 3; ++i) {
    sleep_ms(1);
  }
  sleep_ms(20);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(prefetcher.next().pairs, 0);
  for (int i = 0; i < 1000 && made < 4; ++i) {
    sleep_ms(1);
  }
  sleep_ms(20);
  EXPECT_EQ(made, 4);
}

TEST(Prefetch, an_exception_comes_after_the_steps_before_it) {
  int64_t made = 0;
  Prefetcher prefetcher([&]() -> TrainStep {
    require(made < 2, "no more than {} steps", made);
    return numbered(made++);
  });
  EXPECT_EQ(prefetcher.next().pairs, 0);
  EXPECT_EQ(prefetcher.next().pairs, 1);
  for (int i = 0; i < 2; ++i) {
    try {
      prefetcher.next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no more than 2 steps");
    }
  }
}

TEST(Prefetch, ends_in_every_state) {
  for (int i = 0; i < 50; ++i) {
    const Prefetcher unused([] { return numbered(1); }, 2);
    Prefetcher used([] { return numbered(1); }, 2);
    used.next();
    const Prefetcher failing([]() -> TrainStep { throw Error("gone"); });
  }
}

}  // namespace
}  // namespace tandem::data
