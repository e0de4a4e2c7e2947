// Bytes that one rank sends and receives: planned here, counted in Communicator::traffic(). Payload only, without the
// headers of the transport.
#pragma once

#include <cstdint>

#include "dist/shard.h"
#include "tensor/view.h"

namespace tandem::dist {

struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;

  bool operator==(const Traffic&) const = default;
};

inline Traffic operator+(const Traffic& a, const Traffic& b) { return {a.sent + b.sent, a.received + b.received}; }

// Every rank sends each peer that peer's shard.
inline Traffic planned_reduce_scatter(int64_t count, DType type, int rank, int size) {
  const auto width = static_cast<int64_t>(size_of(type));
  const int64_t own = shard_of(count, size, rank).count;
  return {(count - own) * width, own * (size - 1) * width};
}

// Every rank sends its own shard to each peer.
inline Traffic planned_all_gather(int64_t count, DType type, int rank, int size) {
  const Traffic scatter = planned_reduce_scatter(count, type, rank, size);
  return {scatter.received, scatter.sent};
}

}  // namespace tandem::dist
