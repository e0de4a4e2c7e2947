#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "core/error.h"

namespace tandem::inline core {
namespace {

TEST(Threads, EveryPieceRunsOnce) {
  for (const int count : {1, 2, 3, 4, 8, 16}) {
    const Threads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const int64_t pieces : {0, 1, 2, 3, 7, 1000}) {
      for (int again = 0; again < 20; ++again) {
        std::vector<int> runs(static_cast<size_t>(pieces));
        threads.parallel_for(pieces, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
        EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(pieces), 1)) << count << " threads";
      }
    }
  }
}

// Each loop reads what the one before has written, on whichever threads.
TEST(Threads, ALoopSeesTheLoopBefore) {
  const Threads threads(4);
  std::vector<int64_t> values(64);
  constexpr int64_t kLoops = 3000;
  for (int64_t loop = 0; loop < kLoops; ++loop) {
    std::vector<int64_t> next(values.size());
    threads.parallel_for(64,
                         [&](int64_t i) { next[static_cast<size_t>(i)] = values[static_cast<size_t>(63 - i)] + 1; });
    values = std::move(next);
  }
  EXPECT_EQ(values, std::vector<int64_t>(64, kLoops));
}

TEST(Threads, PiecesRunAtTheSameTime) {
  const Threads threads(3);
  std::atomic<int> waiting = 0;
  threads.parallel_for(3, [&](int64_t) {
    for (++waiting; waiting < 3;) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(waiting, 3);
}

TEST(Threads, OneExceptionComesOutWhenAllIsDone) {
  for (const int count : {2, 5}) {
    const Threads threads(count);
    for (int again = 0; again < 50; ++again) {
      std::atomic<int> done = 0;
      const auto loop = [&](int64_t i) {
        require(i % 10 != 3, "piece {}", i);
        ++done;
      };
      EXPECT_THROW(threads.parallel_for(100, loop), Error);
      EXPECT_EQ(done, 90);
    }
  }
}

TEST(Threads, ALoopInsideALoop) {
  const Threads threads(4);
  std::atomic<int64_t> sum = 0;
  threads.parallel_for(10, [&](int64_t i) { threads.parallel_for(10, [&](int64_t j) { sum += 10 * i + j; }); });
  EXPECT_EQ(sum, 99 * 100 / 2);
}

TEST(Threads, TwoCallersAtOnce) {
  const Threads threads(3);
  const auto count_up = [&](int64_t& sum) {
    for (int loop = 0; loop < 500; ++loop) {
      std::atomic<int64_t> done = 0;
      threads.parallel_for(20, [&](int64_t i) { done += i; });
      sum += done;
    }
  };
  int64_t here = 0, there = 0;
  std::thread other([&] { count_up(there); });
  count_up(here);
  other.join();
  EXPECT_EQ(here, 500 * 190);
  EXPECT_EQ(there, 500 * 190);
}

// Threads that wait must leave the cores to others.
TEST(Threads, ThreadsWithoutWorkSleep) {
  const Threads threads(8);
  threads.parallel_for(100, [](int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

TEST(Threads, RefusesWhatIsNoNumberOfThreads) {
  EXPECT_THROW(Threads(-1), Error);
  EXPECT_THROW(Threads(1025), Error);
  EXPECT_GE(Threads(0).count(), 1);
}

}  // namespace
}  // namespace tandem::inline core
