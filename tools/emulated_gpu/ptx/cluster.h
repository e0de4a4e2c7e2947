// The blocks of a cluster at work together, or a block alone: their shared memory, one block's behind the other's, who
// has waited for whom, the barriers in that memory, and what the copy engine has still to bring there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emulated_gpu/ptx/race_check.h"

namespace emulated {

// The address that `mapa` makes of one in shared memory has the block's rank, plus 1, above these bits.
constexpr uint32_t kRankShift = 24;

class Cluster {
 public:
  // `shared`: bytes of a block. What the copy engine brings arrives at once, or when it is waited for.
  Cluster(size_t blocks, size_t shared, size_t warps_of_block, bool copies_at_once);

  size_t blocks() const { return warps_left_.size(); }
  size_t shared_bytes() const { return shared_bytes_; }  // of a block
  size_t warps_of_block() const { return warps_of_block_; }
  RaceCheck& races() { return races_; }
  // Where a block's address is in the cluster's memory, as all functions below count.
  size_t offset(size_t rank, size_t address) const { return rank * stride_ + address; }
  std::byte* at(size_t offset) { return memory_.data() + offset; }

  void start();
  // A warp of another block reaches into this one's memory now, or lets it be written.
  void visit(size_t warp, size_t rank) {
    visits_[rank * warps_left_.size() * warps_of_block_ + warp] = races_.stretch(warp);
  }
  // A warp of the block ends. With the last one the block's memory goes, so what others do there must be over: what is
  // wrong is returned.
  std::string end_warp(size_t rank);
  bool has_ended(size_t rank) const { return warps_left_[rank] == 0; }
  // How often something has happened that a warp may wait for.
  uint64_t events() const { return events_; }

  // ---- barriers: a phase ends with the last arrival and the last byte that was announced. What is wrong is returned.
  std::string init_barrier(size_t barrier, uint32_t arrivals);
  std::string arrive(size_t warp, size_t barrier, uint32_t arrivals, int64_t announced);
  // Whether the phase with this parity has ended; then the warp knows what those knew that arrived.
  std::string try_wait(size_t warp, size_t barrier, uint32_t parity, bool& ended);
  // `deliver` writes bytes into shared memory, which the barrier counts.
  std::string bring(size_t warp, size_t barrier, size_t bytes, std::function<void()> deliver);
  // At the end: whether all that was to be brought has arrived.
  bool all_arrived() const;

 private:
  struct Delivery {
    size_t bytes;
    RaceCheck::Clock clock;
    std::function<void()> deliver;
  };
  struct Barrier {
    uint32_t expected = 0, pending = 0, phase = 0;
    int64_t bytes = 0;               // announced and not yet there
    RaceCheck::Clock coming, ended;  // of those who arrive now, and of the phase that ended last
    std::vector<Delivery> deliveries;
  };

  Barrier* find(size_t barrier);
  void deliver(Barrier& barrier, const Delivery& delivery);
  void end_phase(Barrier& barrier);

  size_t shared_bytes_;
  size_t stride_;  // from block to block, whole patterns of the copy engine's
  size_t warps_of_block_;
  bool copies_at_once_;
  std::vector<std::byte> memory_;
  RaceCheck races_;
  std::vector<size_t> warps_left_;  // by block
  std::vector<uint32_t> visits_;    // [block, warp]: stretch of the last one, 0 if there was none
  std::map<size_t, Barrier> barriers_;
  uint64_t events_ = 0;
};

}  // namespace emulated
