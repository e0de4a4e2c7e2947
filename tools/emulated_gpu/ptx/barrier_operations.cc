// How warps wait for one another, for other blocks of their cluster, and for the kernel before theirs.
#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

constexpr size_t kBarrierBytes = 8;

void nothing(Warp& /*warp*/, const Instruction& /*i*/, uint32_t /*lanes*/) {}

// run(lane, the barrier that operand 0 of the lane is the address of)
template <class Run>
void for_barriers(Warp& warp, const Instruction& i, size_t operand, uint32_t lanes, const Run& run) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      const uint64_t address = warp.base(i, static_cast<int>(operand), lane) + static_cast<uint64_t>(i.displacement[0]);
      run(lane, warp.place_in_cluster(address, kBarrierBytes, kBarrierBytes, lane));
    }
  }
}

void init(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_barriers(warp, i, 0, lanes, [&](int lane, size_t barrier) {
    warp.require_nothing_wrong(warp.cluster().init_barrier(barrier, warp.lanes<uint32_t>(i.at[1])[lane]), lane);
  });
}

void arrive(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_barriers(warp, i, 0, lanes, [&](int lane, size_t barrier) {
    const int64_t announced = i.operands > 1 ? warp.lanes<uint32_t>(i.at[1])[lane] : 0;
    warp.require_nothing_wrong(warp.cluster().arrive(warp.id(), barrier, 1, announced), lane);
  });
}

// ended, [barrier], parity
void try_wait(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t all = 0;
  for_barriers(warp, i, 1, lanes, [&](int lane, size_t barrier) {
    bool ended = false;
    warp.require_nothing_wrong(warp.cluster().try_wait(warp.id(), barrier, warp.lanes<uint32_t>(i.at[2])[lane], ended),
                               lane);
    all |= static_cast<uint32_t>(ended) << lane;
  });
  set_predicate(warp, i.at[0], lanes, all);
  if (all != lanes) {
    warp.poll();
  }
}

}  // namespace

void add_barrier_operations(Operations& all) {
  all["mbarrier.init.shared::cta.b64"] = {init, "mw"};
  all["mbarrier.arrive.shared::cta.b64"] = all["mbarrier.arrive.shared::cluster.b64"] = {arrive, "m"};
  all["mbarrier.arrive.expect_tx.shared::cta.b64"] = {arrive, "mw"};
  all["mbarrier.try_wait.parity.shared::cta.b64"] =
      all["mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"] = {try_wait, "pmw"};
  add_map<uint32_t, uint32_t, uint32_t>(all, "mapa.shared::cluster.u32", [](uint32_t address, uint32_t rank) {
    return address | (rank + 1) << kRankShift;
  });

  all["barrier.cluster.arrive.relaxed.aligned"] = {
      [](Warp& warp, const Instruction&, uint32_t lanes) { warp.arrive_at_cluster(lanes, false); }, ""};
  all["barrier.cluster.arrive.release"] = {
      [](Warp& warp, const Instruction&, uint32_t lanes) { warp.arrive_at_cluster(lanes, true); }, ""};
  all["barrier.cluster.wait.acquire"] =
      all["barrier.cluster.wait.acquire.aligned"] = {nullptr, "", Step::cluster_barrier};

  all["fence.proxy.async.shared::cta"] = {
      [](Warp& warp, const Instruction&, uint32_t) { warp.cluster().races().fence(warp.id()); }, ""};
  all["fence.mbarrier_init.release.cluster"] = {nothing, ""};
  all["griddepcontrol.launch_dependents"] = {nothing, ""};
  all["griddepcontrol.wait"] = {[](Warp& warp, const Instruction&, uint32_t) { warp.await_previous_kernel(); }, ""};
  all["setmaxnreg.inc.sync.aligned.u32"] = all["setmaxnreg.dec.sync.aligned.u32"] = {nothing, "n"};
}

}  // namespace emulated
