// Copies between global and shared memory beside the computation, a box of a matrix each, and stores to other blocks of
// the cluster.
#include <algorithm>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/operations.h"
#include "emulated_gpu/ptx/tensor_map.h"

namespace emulated {

namespace {

constexpr size_t kMapBytes = 128, kMapAlignment = 64;

TensorMap map_at(Warp& warp, uint64_t address, int lane) {
  TensorMap map;
  static_assert(sizeof map <= kMapAlignment);
  std::memcpy(&map, warp.parameter(address, kMapAlignment, lane), sizeof map);
  warp.parameter(address + kMapBytes - kMapAlignment, kMapAlignment, lane);
  if (map.magic != TensorMap::kMagic) {
    warp.fail_at(lane, "the copy engine is given something else than a map of a matrix");
  }
  return map;
}

struct Box {
  TensorMap map;
  int32_t col = 0, row = 0;

  // run(place of a row in the box, where it is in global memory, bytes of it that the matrix has); only rows and
  // columns inside the matrix.
  template <class Run>
  void for_rows(const Run& run) const {
    const int64_t cols = std::clamp<int64_t>(map.cols - col, 0, TensorMap::kCols);
    for (int64_t r = 0; r < map.box_rows && cols > 0; ++r) {
      if (row + r < map.rows) {
        const uint64_t from = map.data + static_cast<uint64_t>((row + r) * map.stride + col * int64_t{2});
        run(static_cast<size_t>(r) * TensorMap::kRowBytes, from, static_cast<size_t>(cols) * 2);
      }
    }
  }
};

// [map], col, row
Box box_of(Warp& warp, const Instruction& i, size_t operand, size_t address, int lane) {
  const Box box{
      map_at(warp, warp.base(i, static_cast<int>(operand), lane) + static_cast<uint64_t>(i.displacement[address]),
             lane),
      static_cast<int32_t>(warp.lanes<uint32_t>(i.at[operand + 1])[lane]),
      static_cast<int32_t>(warp.lanes<uint32_t>(i.at[operand + 2])[lane])};
  if (box.col < 0 || box.row < 0) {
    warp.fail_at(lane, fmt::format("a box begins at row {}, column {}", box.row, box.col));
  }
  box.for_rows([&](size_t, uint64_t place, size_t bytes) { warp.global_bytes(place, bytes, lane); });
  return box;
}

// Bytes of a box's row, at `offset` of shared memory, to or from global memory. Pieces end at multiples of 16.
template <class Copy>
void for_pieces(size_t offset, size_t bytes, const Copy& copy) {
  for (size_t done = 0; done < bytes; done += 16) {
    copy(swizzled(offset + done), done, std::min<size_t>(16, bytes - done));
  }
}

void load(Cluster& cluster, const Box& box, size_t to) {
  std::memset(cluster.at(to), 0, box.map.box_bytes());
  box.for_rows([&](size_t row, uint64_t from, size_t bytes) {
    for_pieces(to + row, bytes, [&](size_t place, size_t done, size_t count) {
      std::memcpy(cluster.at(place), reinterpret_cast<const std::byte*>(from) + done, count);  // NOLINT: of the host
    });
  });
}

void store(Cluster& cluster, const Box& box, size_t from) {
  box.for_rows([&](size_t row, uint64_t to, size_t bytes) {
    for_pieces(from + row, bytes, [&](size_t place, size_t done, size_t count) {
      std::memcpy(reinterpret_cast<std::byte*>(to) + done, cluster.at(place), count);  // NOLINT: of the host
    });
  });
}

uint64_t address_of(Warp& warp, const Instruction& i, int operand, size_t address, int lane) {
  return warp.base(i, operand, lane) + static_cast<uint64_t>(i.displacement[address]);
}

// [to], [map], col, row, [barrier], and with kToMany the bits of the blocks that get it
template <bool kToMany>
void load_box(Warp& warp, const Instruction& i, uint32_t lanes) {
  Cluster& cluster = warp.cluster();
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) {
      continue;
    }
    const Box box = box_of(warp, i, 1, 1, lane);
    const uint32_t blocks = kToMany ? warp.lanes<uint32_t>(i.at[5])[lane] & 0xFFFF : 1U << warp.rank();
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if ((blocks >> rank & 1) != 0) {
        const uint64_t block = uint64_t{rank + 1} << kRankShift;
        const size_t bytes = box.map.box_bytes();
        const size_t to = warp.place_in_cluster(block | address_of(warp, i, 0, 0, lane), bytes, 128, lane);
        const size_t barrier = warp.place_in_cluster(block | address_of(warp, i, 4, 2, lane), 8, 8, lane);
        warp.check_engine_writes(to, bytes, lane);
        warp.require_nothing_wrong(
            cluster.bring(warp.id(), barrier, bytes, [&cluster, box, to] { load(cluster, box, to); }), lane);
      }
    }
  }
}

// [map], col, row, [from]
void store_box(Warp& warp, const Instruction& i, uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      const Box box = box_of(warp, i, 0, 0, lane);
      const size_t bytes = box.map.box_bytes();
      const size_t from = warp.place_in_cluster(address_of(warp, i, 3, 1, lane), bytes, 128, lane);
      warp.check_engine_reads(from, bytes, lane);
      warp.begin_store(lane, [&warp, box, from, bytes, lane] {
        warp.check_engine_reads(from, bytes, lane);
        store(warp.cluster(), box, from);
      });
    }
  }
}

// [to], {4 numbers}, [barrier]
void store_to_block(Warp& warp, const Instruction& i, uint32_t lanes) {
  Cluster& cluster = warp.cluster();
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      std::array<uint32_t, 4> numbers{};
      for (size_t n = 0; n < numbers.size(); ++n) {
        numbers[n] = warp.lanes<uint32_t>(i.at[n + 1])[lane];
      }
      const size_t to = warp.place_in_cluster(address_of(warp, i, 0, 0, lane), sizeof numbers, sizeof numbers, lane);
      const size_t barrier = warp.place_in_cluster(address_of(warp, i, 5, 1, lane), 8, 8, lane);
      warp.check_engine_writes(to, sizeof numbers, lane);
      warp.require_nothing_wrong(
          cluster.bring(warp.id(), barrier, sizeof numbers,
                        [&cluster, numbers, to] { std::memcpy(cluster.at(to), numbers.data(), sizeof numbers); }),
          lane);
    }
  }
}

void prefetch_box(Warp& warp, const Instruction& i, uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      map_at(warp, address_of(warp, i, 0, 0, lane), lane);
    }
  }
}

}  // namespace

void add_copy_engine_operations(Operations& all) {
  const std::string box = "cp.async.bulk.tensor.2d.";
  all[box + "shared::cluster.global.mbarrier::complete_tx::bytes"] = {load_box<false>, "mmwwm"};
  all[box + "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"] = {load_box<true>, "mmwwmw"};
  all[box + "global.shared::cta.bulk_group"] = {store_box, "mwwm"};
  all["cp.async.bulk.commit_group"] = {
      [](Warp& warp, const Instruction&, uint32_t lanes) { warp.commit_stores(lanes); }, ""};
  all["cp.async.bulk.wait_group.read"] = {[](Warp& warp, const Instruction& i, uint32_t lanes) {
                                            if (i.at[0] != 0) {
                                              warp.fail_at(0, "the emulated GPU waits for all boxes or for none");
                                            }
                                            warp.await_stores(lanes);
                                          },
                                          "n"};
  all["cp.async.bulk.prefetch.tensor.2d.L2.global"] = {prefetch_box, "mww"};
  all["prefetch.tensormap"] = {prefetch_box, "m"};
  all["st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32"] = {store_to_block, "mwwwwm"};
}

}  // namespace emulated
