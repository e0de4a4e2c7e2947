// How a buffer is cut between ranks: equal shards of ceil(count / size) elements; the last ones are shorter or empty.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::dist {

// Elements [begin, begin + count).
struct Shard {
  int64_t begin = 0;
  int64_t count = 0;
};

inline Shard shard_of(int64_t count, int size, int rank) {
  const int64_t each = (count + size - 1) / size;
  const int64_t begin = std::min(count, each * rank);
  return {begin, std::min(each, count - begin)};
}

}  // namespace tandem::dist
