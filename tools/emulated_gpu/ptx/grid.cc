#include "emulated_gpu/ptx/grid.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "emulated_gpu/error.h"

namespace emulated {

namespace {

constexpr int kMostIdleRounds = 1000;  // in which nothing happens that a warp could wait for

class Blocks {  // of a cluster
 public:
  Blocks(const LaunchedKernel& launch, size_t dynamic_shared, bool reversed)
      : cluster_(launch.cluster, launch.program.dynamic_shared + dynamic_shared, warps_of(launch), reversed),
        reversed_(reversed) {
    warps_.reserve(launch.cluster * warps_of(launch));
    for (uint32_t rank = 0; rank < launch.cluster; ++rank) {
      for (uint32_t i = 0; i < warps_of(launch); ++i) {
        all_.push_back(warps_.size());
        warps_.emplace_back(launch, cluster_, rank, i);
      }
    }
  }

  // `place` is the first block's.
  void run(Size3 place) {
    cluster_.start();
    cluster_.races().meet(all_);
    for (Warp& warp : warps_) {
      warp.start({place.x + warp.rank(), place.y, place.z});
    }
    states_.assign(warps_.size(), Warp::State::ready);
    for (int idle = 0; std::ranges::count(states_, Warp::State::ended) < std::ssize(states_);) {
      const uint64_t events = cluster_.events();
      bool moved = false;
      for (size_t i = 0; i < warps_.size(); ++i) {
        const size_t warp = reversed_ ? warps_.size() - 1 - i : i;
        if (states_[warp] == Warp::State::ready || states_[warp] == Warp::State::polling) {
          states_[warp] = warps_[warp].run();
          moved = moved || states_[warp] != Warp::State::polling;
          if (states_[warp] == Warp::State::ended) {
            warps_[warp].require_nothing_wrong(cluster_.end_warp(warps_[warp].rank()), 0);
          }
        }
      }
      moved = open_barriers() || moved || events != cluster_.events();
      idle = moved ? 0 : idle + 1;
      if (idle > kMostIdleRounds) {
        fail_waiting();
      }
    }
    require(cluster_.all_arrived(), "a cluster ends before what it let the copy engine bring has arrived");
    has_awaited_ = has_awaited_ || std::ranges::any_of(warps_, &Warp::has_awaited);
  }

  // Whether some warp has waited for the kernel before.
  bool has_awaited() const { return has_awaited_; }

 private:
  static uint32_t warps_of(const LaunchedKernel& launch) {
    return static_cast<uint32_t>((launch.block.count() + kLanes - 1) / kLanes);
  }

  [[noreturn]] void fail_waiting() const {
    const auto waits = std::ranges::find_if(states_, [](Warp::State s) { return s != Warp::State::ended; });
    warps_[static_cast<size_t>(waits - states_.begin())].fail_at(0, "the barrier waits for warps that will not come");
  }

  // Whether one was opened.
  bool open_barriers() {
    std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> waiting;  // by block and barrier
    for (size_t i = 0; i < warps_.size(); ++i) {
      if (states_[i] == Warp::State::at_barrier) {
        waiting[{warps_[i].rank(), warps_[i].barrier()}].push_back(i);
      }
    }
    bool opened = false;
    for (const auto& [barrier, warps] : waiting) {
      const uint32_t named = warps_[warps[0]].barrier_threads();
      const size_t needed = named == 0 ? cluster_.warps_of_block() : named / kLanes;
      if (warps.size() == needed) {
        opened = true;
        cluster_.races().meet(warps);
        for (const size_t warp : warps) {
          states_[warp] = Warp::State::ready;
        }
      }
    }
    return open_cluster_barrier() || opened;
  }

  // A warp goes on when all that have not ended have come as often as it has.
  bool open_cluster_barrier() {
    std::vector<size_t> opened;
    for (const size_t i : all_) {
      const auto has_come = [&](size_t other) {
        return states_[other] == Warp::State::ended || warps_[other].cluster_arrivals() >= warps_[i].cluster_arrivals();
      };
      if (states_[i] == Warp::State::at_cluster_barrier && std::ranges::all_of(all_, has_come)) {
        opened.push_back(i);
      }
    }
    if (!opened.empty() && std::ranges::all_of(opened, [&](size_t i) { return warps_[i].releases(); })) {
      cluster_.races().meet(opened);
    }
    for (const size_t i : opened) {
      states_[i] = Warp::State::ready;
    }
    return !opened.empty();
  }

  Cluster cluster_;
  bool reversed_, has_awaited_ = false;
  std::vector<size_t> all_;  // warps
  std::vector<Warp> warps_;
  std::vector<Warp::State> states_;
};

}  // namespace

void run_grid(const LaunchedKernel& launch, size_t dynamic_shared) {
  static std::atomic<unsigned> launches = 0;
  const bool reversed = launches++ % 2 != 0;
  Blocks blocks(launch, dynamic_shared, reversed);
  const Size3 clusters{launch.grid.x / launch.cluster, launch.grid.y, launch.grid.z};
  for (uint64_t i = 0; i < clusters.count(); ++i) {
    const uint64_t place = reversed ? clusters.count() - 1 - i : i;
    blocks.run({static_cast<uint32_t>(place % clusters.x) * launch.cluster,
                static_cast<uint32_t>(place / clusters.x % clusters.y),
                static_cast<uint32_t>(place / clusters.x / clusters.y)});
  }
  require(blocks.has_awaited(),
          "kernel {} overlaps and never waits for the one before, so the next one does not either",
          launch.program.name);
}

}  // namespace emulated
