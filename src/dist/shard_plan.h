// Who keeps which part of an optimizer's state, if the ranks share it out.
#pragma once

#include <vector>

#include "dist/buckets.h"

namespace tandem::dist {

struct ShardPiece {
  int64_t begin = 0, count = 0;  // elements of the flat buffers
  int64_t first = 0;             // where they begin in what the rank keeps

  bool operator==(const ShardPiece&) const = default;
};

using ShardPieces = std::vector<ShardPiece>;

int64_t elements_of(const ShardPieces& pieces);

// By shard number: of every bucket its equal shard (shard.h), which reduce-scatter leaves there.
std::vector<ShardPieces> equal_shards(const std::vector<Bucket>& buckets, int ranks);

// By shard number: whole ranges, in runs of neighbours of about the same size. For what cannot be cut anywhere.
std::vector<ShardPieces> whole_shards(const std::vector<Bucket>& ranges, int ranks);

}  // namespace tandem::dist
