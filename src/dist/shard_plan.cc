#include "dist/shard_plan.h"

#include <algorithm>

#include "dist/shard.h"

namespace tandem::dist {

namespace {

void add(ShardPieces& pieces, int64_t begin, int64_t count) { pieces.push_back({begin, count, elements_of(pieces)}); }

}  // namespace

int64_t elements_of(const ShardPieces& pieces) {
  return pieces.empty() ? 0 : pieces.back().first + pieces.back().count;
}

std::vector<ShardPieces> equal_shards(const std::vector<Bucket>& buckets, int ranks) {
  std::vector<ShardPieces> shards(static_cast<size_t>(ranks));
  for (int number = 0; number < ranks; ++number) {
    for (const Bucket& bucket : buckets) {
      const Shard shard = shard_of(bucket.count, ranks, number);
      add(shards[static_cast<size_t>(number)], bucket.begin + shard.begin, shard.count);
    }
  }
  return shards;
}

std::vector<ShardPieces> whole_shards(const std::vector<Bucket>& ranges, int ranks) {
  int64_t all = 0, before = 0;
  for (const Bucket& range : ranges) {
    all += range.count;
  }
  std::vector<ShardPieces> shards(static_cast<size_t>(ranks));
  for (const Bucket& range : ranges) {  // to the shard in which its middle lies
    const int64_t number = std::min<int64_t>(ranks - 1, (before + range.count / 2) * ranks / std::max<int64_t>(all, 1));
    add(shards[static_cast<size_t>(number)], range.begin, range.count);
    before += range.count;
  }
  return shards;
}

}  // namespace tandem::dist
