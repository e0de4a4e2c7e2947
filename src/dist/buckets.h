// How a flat gradient is cut into buckets that are added up over the ranks while the backward pass goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Elements [begin, begin + count) of the flat buffers.
struct Bucket {
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const Bucket&) const = default;
};

struct BucketPlan {
  std::vector<Bucket> buckets;  // in the order in which they can start
  std::vector<size_t> ready;    // by call: so many buckets can have started after it
  // What no call speaks of: embedding tables that are only looked up, whose few rows travel by themselves.
  std::vector<Bucket> rest;
  int64_t padded = 0;  // the flat size, rounded up to the unit

  std::vector<Bucket> all() const;  // buckets, then the rest: together [0, padded)
};

// calls: the ranges that a backward pass declares complete, in its order; neighbours come from the end to the
// beginning. Every bucket begins and ends at a multiple of `unit` and holds at most `most` elements (rounded down to
// units, at least one unit); neighbouring ranges that are small share a bucket.
BucketPlan plan_buckets(const std::vector<Bucket>& calls, int64_t flat_size, int64_t unit, int64_t most);

}  // namespace tandem
