#include "emulated_gpu/ptx/grid.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "core/error.h"

namespace tandem::emulated {

namespace {

class Block {
 public:
  Block(const LaunchedKernel& launch, size_t dynamic_shared, bool reversed)
      : shared_(launch.program.dynamic_shared + dynamic_shared),
        races_(shared_.size(), warps_of(launch)),
        reversed_(reversed) {
    warps_.reserve(warps_of(launch));
    for (size_t i = 0; i < warps_of(launch); ++i) {
      warps_.emplace_back(launch, shared_, races_);
      all_.push_back(i);
    }
  }

  void run(Size3 place) {
    std::ranges::fill(shared_, std::byte{0xFF});
    races_.meet(all_);
    for (uint32_t i = 0; i < warps_.size(); ++i) {
      warps_[i].start(place, i);
    }
    states_.assign(warps_.size(), Warp::State::ready);
    while (std::ranges::count(states_, Warp::State::ended) < std::ssize(states_)) {
      for (size_t i = 0; i < warps_.size(); ++i) {
        const size_t warp = reversed_ ? warps_.size() - 1 - i : i;
        if (states_[warp] == Warp::State::ready) {
          states_[warp] = warps_[warp].run();
        }
      }
      open_barriers();
    }
  }

 private:
  static size_t warps_of(const LaunchedKernel& launch) { return (launch.block.count() + kLanes - 1) / kLanes; }

  void open_barriers() {
    std::map<uint32_t, std::vector<size_t>> waiting;
    for (size_t i = 0; i < warps_.size(); ++i) {
      if (states_[i] == Warp::State::at_barrier) {
        waiting[warps_[i].barrier()].push_back(i);
      }
    }
    bool opened = waiting.empty();
    for (const auto& [barrier, warps] : waiting) {
      const uint32_t named = warps_[warps[0]].barrier_threads();
      const size_t needed = named == 0 ? warps_.size() : named / kLanes;
      if (warps.size() == needed) {
        opened = true;
        races_.meet(warps);
        for (const size_t warp : warps) {
          states_[warp] = Warp::State::ready;
        }
      }
    }
    if (!opened) {
      warps_[waiting.begin()->second[0]].fail_at(0, "the barrier waits for warps that will not come");
    }
  }

  std::vector<std::byte> shared_;
  RaceCheck races_;
  bool reversed_;
  std::vector<size_t> all_;  // warps
  std::vector<Warp> warps_;
  std::vector<Warp::State> states_;
};

}  // namespace

void run_grid(const LaunchedKernel& launch, size_t dynamic_shared) {
  static std::atomic<unsigned> launches = 0;
  const bool reversed = launches++ % 2 != 0;
  Block block(launch, dynamic_shared, reversed);
  const uint64_t blocks = launch.grid.count();
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t place = reversed ? blocks - 1 - i : i;
    block.run({static_cast<uint32_t>(place % launch.grid.x),
               static_cast<uint32_t>(place / launch.grid.x % launch.grid.y),
               static_cast<uint32_t>(place / launch.grid.x / launch.grid.y)});
  }
}

}  // namespace tandem::emulated
