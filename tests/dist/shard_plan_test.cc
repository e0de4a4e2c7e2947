#include <gtest/gtest.h>

#include <numeric>

#include "dist/buckets.h"

namespace tandem::dist {
namespace {

TEST(ShardPlan, EveryElementOfEveryBucketIsInOneShard) {
  const std::vector<Bucket> buckets{{32, 10}, {0, 32}, {42, 3}};
  for (const int ranks : {1, 2, 3, 7}) {
    std::vector<int> kept(45);
    for (const ShardPieces& pieces : equal_shards(buckets, ranks)) {
      ASSERT_EQ(pieces.size(), buckets.size());
      int64_t first = 0;
      for (const ShardPiece& piece : pieces) {
        EXPECT_EQ(piece.first, first);
        first += piece.count;
        for (int64_t i = 0; i < piece.count; ++i) {
          ++kept[static_cast<size_t>(piece.begin + i)];
        }
      }
      EXPECT_EQ(elements_of(pieces), first);
    }
    EXPECT_EQ(kept, std::vector<int>(45, 1)) << ranks;
  }
}

TEST(ShardPlan, WholeRangesStayWholeAndSharesAreAboutEqual) {
  std::vector<Bucket> ranges;
  for (int64_t begin = 0; begin < 1000; begin += 50) {
    ranges.push_back({begin, 40});  // with gaps between them
  }
  for (const int ranks : {1, 3, 4}) {
    const std::vector<ShardPieces> shards = whole_shards(ranges, ranks);
    std::vector<Bucket> all;
    for (const ShardPieces& pieces : shards) {
      EXPECT_NEAR(static_cast<double>(elements_of(pieces)), 800.0 / ranks, 40);
      for (const ShardPiece& piece : pieces) {
        all.push_back({piece.begin, piece.count});
      }
    }
    EXPECT_EQ(all, ranges);
  }
}

TEST(ShardPlan, ThereMayBeMoreRanksThanRanges) {
  const std::vector<ShardPieces> shards = whole_shards({{0, 8}, {8, 2}}, 5);
  EXPECT_EQ(std::accumulate(shards.begin(), shards.end(), int64_t{0},
                            [](int64_t sum, const ShardPieces& pieces) { return sum + elements_of(pieces); }),
            10);
}

}  // namespace
}  // namespace tandem::dist
