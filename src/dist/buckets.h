// How a flat gradient is cut into buckets that are all-reduced while the backward pass continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dist/communicator.h"

namespace tandem::dist {

// Elements [begin, begin + count) of the flat buffers.
using Bucket = Shard;

struct BucketPlan {
  std::vector<Bucket> buckets;  // in the order in which they can start
  std::vector<size_t> ready;    // [call]: number of buckets that can have started after it
  // Ranges that no call declares: embedding tables that are only looked up, whose few rows are reduced separately.
  std::vector<Bucket> rest;
  int64_t padded = 0;  // the flat size, rounded up to the unit

  std::vector<Bucket> all() const;  // buckets, then the rest: together [0, padded)
};

// calls: the ranges that a backward pass declares complete, in its order; neighbouring calls go from the end of the
// buffer to its beginning. Every bucket begins and ends at a multiple of `unit` and holds at most `most` elements
// (rounded down to units, at least one unit); small neighbouring ranges share a bucket.
BucketPlan plan_buckets(const std::vector<Bucket>& calls, int64_t flat_size, int64_t unit, int64_t most);

// The parts of an optimizer's state that a rank keeps, if the ranks share it out.
struct ShardPiece {
  int64_t begin = 0, count = 0;  // elements of the flat buffers
  int64_t first = 0;             // index of these elements in the rank's shard

  bool operator==(const ShardPiece&) const = default;
};

using ShardPieces = std::vector<ShardPiece>;

int64_t elements_of(const ShardPieces& pieces);

// By shard number: an equal shard of every bucket, the one in which reduce-scatter leaves sums.
std::vector<ShardPieces> equal_shards(const std::vector<Bucket>& buckets, int ranks);

// By shard number: whole ranges, neighbours together, about the same size for each rank. For data that cannot be cut.
std::vector<ShardPieces> whole_shards(const std::vector<Bucket>& ranges, int ranks);

}  // namespace tandem::dist
