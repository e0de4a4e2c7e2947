#include <gtest/gtest.h>

#include "dist/communicator.h"

namespace tandem::dist {
namespace {

TEST(Shard, CoverTheBufferInOrder) {
  for (const int64_t count : {0, 1, 5, 7, 8, 1000}) {
    for (int size = 1; size <= 9; ++size) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Shard shard = shard_of(count, size, rank);
        EXPECT_EQ(shard.begin, next);
        EXPECT_GE(shard.count, 0);
        EXPECT_LE(shard.count, (count + size - 1) / size);
        next += shard.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Traffic, PlanIsTheFormula) {
  for (const int size : {1, 2, 4}) {
    const int64_t bytes = 2 * (size - 1) * 4000 / size;  // 1000 divides by all of them
    const auto ranks = make_silent_communicator(size);
    EXPECT_EQ(ranks->planned_all_reduce(1000, DType::f32), (Traffic{bytes, bytes}));
    EXPECT_EQ(ranks->planned_all_reduce(1000, DType::bf16), (Traffic{bytes / 2, bytes / 2}));
  }
}

}  // namespace
}  // namespace tandem::dist
