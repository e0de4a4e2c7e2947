#include "dist/buckets.h"

#include <algorithm>

namespace tandem::dist {

namespace {

int64_t round_down(int64_t n, int64_t unit) { return n / unit * unit; }
int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Cuts [begin, end) from its end, into buckets of at most `most`.
void cut(std::vector<Bucket>& buckets, int64_t begin, int64_t end, int64_t most) {
  while (end > begin) {
    const int64_t count = std::min(most, end - begin);
    end -= count;
    buckets.push_back({end, count});
  }
}

std::vector<Bucket> gaps(std::vector<Bucket> covered, int64_t size) {
  std::sort(covered.begin(), covered.end(), [](const Bucket& a, const Bucket& b) { return a.begin < b.begin; });
  std::vector<Bucket> result;
  int64_t end = 0;
  for (const Bucket& bucket : covered) {
    require(bucket.begin >= end, "two gradient buckets share element {}", bucket.begin);
    if (bucket.begin > end) {
      result.push_back({end, bucket.begin - end});
    }
    end = bucket.begin + bucket.count;
  }
  if (end < size) {
    result.push_back({end, size - end});
  }
  return result;
}

void add(ShardPieces& pieces, int64_t begin, int64_t count) { pieces.push_back({begin, count, elements_of(pieces)}); }

}  // namespace

std::vector<Bucket> BucketPlan::all() const {
  std::vector<Bucket> result = buckets;
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

BucketPlan plan_buckets(const std::vector<Bucket>& calls, int64_t flat_size, int64_t unit, int64_t most) {
  require(unit > 0 && most >= 0, "gradient buckets of {} elements in units of {}", most, unit);
  most = std::max(unit, round_down(most, unit));
  const int64_t least = most / 4;  // smaller buckets wait for more
  BucketPlan plan;
  plan.padded = round_up(flat_size, unit);
  int64_t end = 0;  // the end of the bucket under construction
  for (size_t i = 0; i < calls.size(); ++i) {
    const Bucket& call = calls[i];
    const bool first = i == 0 || call.begin + call.count != calls[i - 1].begin;
    const bool last = i + 1 == calls.size() || calls[i + 1].begin + calls[i + 1].count != call.begin;
    if (first) {
      const int64_t call_end = call.begin + call.count;
      end = call_end == flat_size ? plan.padded : round_down(call_end, unit);
    }
    // A unit that two neighbouring ranges share waits for the later range, which is the lower one.
    const int64_t begin = last ? round_down(call.begin, unit) : round_up(call.begin, unit);
    if (last || end - begin >= least) {
      cut(plan.buckets, begin, end, most);
      end = std::min(begin, end);
    }
    plan.ready.push_back(plan.buckets.size());
  }
  plan.rest = gaps(plan.buckets, plan.padded);
  return plan;
}

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
