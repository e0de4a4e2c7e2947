#include "train/background_write.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "core/error.h"

namespace tandem::train {
namespace {

using namespace std::chrono_literals;

TEST(BackgroundWrite, GoesOnInItsOwnThread) {
  std::promise<void> open;
  std::atomic<bool> done = false;
  BackgroundWrite writing([] { return true; });
  writing.begin([&] {
    open.get_future().wait();
    done = true;
  });
  EXPECT_FALSE(done);  // begin() has returned
  EXPECT_EQ(writing.take_problem(), "");
  open.set_value();
  EXPECT_EQ(writing.settle(), "");
  EXPECT_TRUE(done);
}

TEST(BackgroundWrite, OneIsDoneBeforeTheNextBegins) {
  std::atomic<int> at_once = 0, most = 0, done = 0;
  {
    BackgroundWrite writing([] { return true; });
    for (int i = 0; i < 20; ++i) {
      writing.begin([&] {
        most = std::max(most.load(), ++at_once);
        std::this_thread::sleep_for(1ms);
        --at_once;
        ++done;
      });
    }
  }
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 20);  // the destructor waits as well
}

TEST(BackgroundWrite, AFailureIsToldAndTriedAgain) {
  std::atomic<int> tries = 0;
  std::promise<void> failed;
  BackgroundWrite writing([] { return true; });
  writing.begin([&] {
    if (++tries == 1) {
      fail("the disk is full");
    }
  });
  std::string problem;
  while (problem.empty()) {
    problem = writing.take_problem();
  }
  EXPECT_NE(problem.find("the disk is full; training goes on"), std::string::npos) << problem;
  EXPECT_EQ(writing.take_problem(), "") << "it is told once";
  EXPECT_EQ(writing.settle(), "") << "settling does not wait for the next try's time";
  EXPECT_EQ(tries, 2);
}

TEST(BackgroundWrite, TheLastTryDecides) {
  BackgroundWrite writing([] { return true; });
  writing.begin([] { fail("the disk is full"); });
  EXPECT_EQ(writing.settle(), "the disk is full");
  EXPECT_THROW(writing.take_problem(), Error);
  writing.begin([] {});
  EXPECT_EQ(writing.settle(), "");
  EXPECT_EQ(writing.take_problem(), "") << "what was written later makes it good";
}

TEST(BackgroundWrite, WithoutAnOlderOneAFailureEndsTheRun) {
  std::atomic<int> tries = 0;
  BackgroundWrite writing([] { return false; });
  writing.begin([&] {
    ++tries;
    fail("the disk is full");
  });
  EXPECT_EQ(writing.settle(), "the disk is full");
  EXPECT_EQ(tries, 1);
  EXPECT_THROW(writing.take_problem(), Error);
}

}  // namespace
}  // namespace tandem::train
