#include "emulated_gpu/ptx/cluster.h"

#include <algorithm>
#include <utility>

#include "emulated_gpu/error.h"

namespace emulated {

namespace {

constexpr const char* kNoBarrier = "there is no barrier at this address";
constexpr int64_t kMostBytes = (1 << 20) - 1;  // that a barrier can count

}  // namespace

Cluster::Cluster(size_t blocks, size_t shared, size_t warps_of_block, bool copies_at_once)
    : shared_bytes_(shared),
      stride_((shared + 1023) / 1024 * 1024),
      warps_of_block_(warps_of_block),
      copies_at_once_(copies_at_once),
      memory_(blocks * stride_),
      races_(memory_.size(), blocks * warps_of_block),
      warps_left_(blocks),
      visits_(blocks * blocks * warps_of_block) {}

void Cluster::start() {
  std::ranges::fill(memory_, std::byte{0xFF});
  std::ranges::fill(warps_left_, warps_of_block_);
  std::ranges::fill(visits_, 0);
  barriers_.clear();
}

std::string Cluster::end_warp(size_t rank) {
  if (--warps_left_[rank] > 0) {
    return {};
  }
  const size_t warps = warps_left_.size() * warps_of_block_;
  for (size_t visitor = 0; visitor < warps; ++visitor) {
    const uint32_t stretch = visits_[rank * warps + visitor];
    bool known = stretch == 0;
    for (size_t own = rank * warps_of_block_; own < (rank + 1) * warps_of_block_; ++own) {
      known = known || races_.knows(own, visitor, stretch);
    }
    if (!known) {
      return fmt::format("block {} of the cluster may end before what warp {} of block {} does in its memory", rank,
                         visitor % warps_of_block_, visitor / warps_of_block_);
    }
  }
  return {};
}

Cluster::Barrier* Cluster::find(size_t barrier) {
  const auto found = barriers_.find(barrier);
  return found == barriers_.end() ? nullptr : &found->second;
}

std::string Cluster::init_barrier(size_t barrier, uint32_t arrivals) {
  if (barriers_.contains(barrier)) {
    return "a barrier is initialised that is one already";
  }
  barriers_[barrier].expected = barriers_[barrier].pending = arrivals;
  return {};
}

std::string Cluster::arrive(size_t warp, size_t at, uint32_t arrivals, int64_t announced) {
  Barrier* const barrier = find(at);
  if (barrier == nullptr) {
    return kNoBarrier;
  }
  if (arrivals > barrier->pending) {
    return "more threads arrive at a barrier than it expects";
  }
  barrier->bytes += announced;
  if (barrier->bytes > kMostBytes) {
    return "a barrier is to count more bytes than it can";
  }
  barrier->pending -= arrivals;
  RaceCheck::join(barrier->coming, races_.release(warp));
  end_phase(*barrier);
  return {};
}

std::string Cluster::try_wait(size_t warp, size_t at, uint32_t parity, bool& ended) {
  Barrier* const barrier = find(at);
  if (barrier == nullptr) {
    return kNoBarrier;
  }
  for (const Delivery& delivery : std::exchange(barrier->deliveries, {})) {
    deliver(*barrier, delivery);
  }
  ended = barrier->phase % 2 != parity % 2;
  if (ended) {
    races_.acquire(warp, barrier->ended);
  }
  return {};
}

std::string Cluster::bring(size_t warp, size_t at, size_t bytes, std::function<void()> function) {
  Barrier* const barrier = find(at);
  if (barrier == nullptr) {
    return kNoBarrier;
  }
  Delivery delivery{bytes, races_.release(warp), std::move(function)};
  if (copies_at_once_) {
    deliver(*barrier, delivery);
  } else {
    barrier->deliveries.push_back(std::move(delivery));
  }
  return {};
}

bool Cluster::all_arrived() const {
  return std::ranges::all_of(barriers_, [](const auto& entry) { return entry.second.deliveries.empty(); });
}

void Cluster::deliver(Barrier& barrier, const Delivery& delivery) {
  delivery.deliver();
  barrier.bytes -= static_cast<int64_t>(delivery.bytes);
  RaceCheck::join(barrier.coming, delivery.clock);
  end_phase(barrier);
}

void Cluster::end_phase(Barrier& barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    ++barrier.phase;
    barrier.pending = barrier.expected;
    barrier.ended = barrier.coming;
    ++events_;
  }
}

}  // namespace emulated
