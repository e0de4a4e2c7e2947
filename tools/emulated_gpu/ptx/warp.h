// A warp at work: 32 lanes in lockstep. Lanes that a branch parts wait for one another where all their ways meet.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "emulated_gpu/ptx/cluster.h"
#include "emulated_gpu/ptx/program.h"
#include "emulated_gpu/runtime/device_memory.h"

namespace emulated {

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// What all warps of a launch read.
struct LaunchedKernel {
  const Program& program;
  Size3 grid, block;
  std::span<const std::byte> arguments;
  uint32_t cluster = 1;   // blocks, next to each other in x
  bool overlaps = false;  // begins before the kernel before it has ended, so that it must wait for it
};

class Warp {
 public:
  enum class State : uint8_t { ready, polling, at_barrier, at_cluster_barrier, ended };

  Warp(const LaunchedKernel& launch, Cluster& cluster, uint32_t rank, uint32_t number);  // in cluster and block

  void start(Size3 block);
  // Until a barrier, a barrier in shared memory whose phase has not ended, or the end.
  State run();
  uint32_t barrier() const { return barrier_; }          // where it waits
  uint32_t barrier_threads() const { return threads_; }  // that meet there; 0 = all of the block
  // At the cluster's barrier, since the block began; whether what came before the last one is known to those who wait.
  uint32_t cluster_arrivals() const { return cluster_arrivals_; }
  bool releases() const { return releases_; }

  // ---- for handlers
  template <class T>
  T* lanes(uint32_t at) {
    return reinterpret_cast<T*>(registers_.data() + at);
  }
  // The base of an address in one lane.
  uint64_t base(const Instruction& i, int operand, int lane) {
    return (i.wide >> operand & 1) != 0 ? lanes<uint64_t>(i.at[operand])[lane] : lanes<uint32_t>(i.at[operand])[lane];
  }
  std::byte* global(uint64_t address, size_t bytes, int lane) {
    if ((address & (bytes - 1)) != 0) {
      fail_access("misaligned", "global", address, bytes, lane);
    }
    return global_bytes(address, bytes, lane);
  }
  std::byte* global_bytes(uint64_t address, size_t bytes, int lane) {
    if (!has_awaited_) {
      fail_at(lane, "an access to global memory before griddepcontrol.wait");
    }
    if (address < known_.begin || address + bytes > known_.end) {
      find_range(address, bytes, lane);
    }
    return reinterpret_cast<std::byte*>(address);  // NOLINT: an address of the host
  }
  void await_previous_kernel() { has_awaited_ = true; }
  bool has_awaited() const { return has_awaited_; }
  enum class Access : uint8_t { read, write, atomic };
  std::byte* shared(uint64_t address, size_t bytes, int lane, Access access) {
    check_inside("shared", address, bytes, kDriversSharedMemory, cluster_.shared_bytes(), lane);
    const size_t offset = cluster_.offset(rank_, address);
    const int other = access == Access::read    ? cluster_.races().read(id_, offset, bytes)
                      : access == Access::write ? cluster_.races().write(id_, offset, bytes)
                                                : RaceCheck::kNoWarp;
    if (other != RaceCheck::kNoWarp) {
      fail_race(access, address, other, lane);
    }
    return cluster_.at(offset);
  }
  // For the copy engine and group products: an address of this block, or of another one by `mapa`, as the cluster
  // counts. `bytes` from there, which need not be a power of two, begin at a multiple of `alignment`.
  size_t place_in_cluster(uint64_t address, size_t bytes, size_t alignment, int lane);
  void check_engine_reads(size_t offset, size_t bytes, int lane) const;
  void check_engine_writes(size_t offset, size_t bytes, int lane) const;
  Cluster& cluster() { return cluster_; }
  uint32_t rank() const { return rank_; }
  uint32_t id() const { return id_; }          // in the cluster
  uint32_t number() const { return number_; }  // in the block
  std::span<const uint32_t> list(uint32_t at, size_t count) const {
    return std::span(launch_.program.lists).subspan(at, count);
  }
  std::byte* local(uint64_t address, size_t bytes, int lane) {
    check_inside("local", address, bytes, 0, launch_.program.local_bytes, lane);
    return local_.data() + static_cast<size_t>(lane) * launch_.program.local_bytes + address;
  }
  const std::byte* parameter(uint64_t address, size_t bytes, int lane) {
    check_inside("parameter", address, bytes, 0, launch_.arguments.size(), lane);
    return launch_.arguments.data() + address;
  }
  // Fails unless exactly the lanes that the instruction names take part.
  void require_members(uint32_t named, uint32_t taking_part);
  [[noreturn]] void fail_at(int lane, const std::string& what) const;
  void require_nothing_wrong(const std::string& wrong, int lane) const {
    if (!wrong.empty()) {
      fail_at(lane, wrong);
    }
  }
  // Others go on before this warp does.
  void poll() { polls_ = true; }
  void arrive_at_cluster(uint32_t lanes, bool releases);

  // ---- copies to shared memory that arrive when they are waited for
  struct Copy {
    int lane;
    uint64_t group, to, from;
    size_t bytes, size;  // those behind `bytes` become 0
  };
  void begin_copy(Copy copy);
  void commit_copies(uint32_t lanes);
  void await_copies(uint32_t lanes, uint64_t groups_left);

  // ---- boxes that the copy engine stores when it is waited for
  void begin_store(int lane, std::function<void()> store) { stores_.push_back({lane, false, std::move(store)}); }
  void commit_stores(uint32_t lanes);
  void await_stores(uint32_t lanes);

  // ---- group products: they read their tiles until they are waited for
  void begin_product_reads(size_t offset, size_t bytes);
  void commit_products() { ++committed_products_; }
  void await_products(uint64_t groups_left);

 private:
  struct Part {
    uint32_t pc, join, lanes;
  };
  struct Store {
    int lane;
    bool committed;
    std::function<void()> store;
  };
  struct ProductReads {
    uint64_t group;
    size_t offset, bytes;
  };

  void check_inside(const char* space, uint64_t address, size_t bytes, size_t begin, size_t end, int lane) const {
    if ((address & (bytes - 1)) != 0) {
      fail_access("misaligned", space, address, bytes, lane);
    }
    if (address < begin || address + bytes > end) {
      fail_access("out-of-bounds", space, address, bytes, lane);
    }
  }
  [[noreturn]] void fail_access(const char* how, const char* space, uint64_t address, size_t bytes, int lane) const;
  [[noreturn]] void fail_race(Access access, uint64_t address, int other, int lane) const;
  void find_range(uint64_t address, size_t bytes, int lane);
  const std::byte* copied_from(const Copy& copy);
  void branch(const Instruction& instruction, uint32_t taken);
  void exit(uint32_t lanes);
  void meet_barrier(const Instruction& instruction, uint32_t lanes);
  void require_all_live(uint32_t lanes) const;

  const LaunchedKernel& launch_;
  Cluster& cluster_;
  uint32_t rank_, number_, id_;
  std::vector<std::byte> registers_, local_;
  std::vector<Part> parts_;  // the last one runs
  Size3 block_;
  uint32_t live_ = 0;
  bool polls_ = false, has_awaited_ = true, releases_ = false;
  uint32_t cluster_arrivals_ = 0;
  uint32_t barrier_ = 0, threads_ = 0;
  uint32_t now_ = 0;  // instruction, for messages
  DeviceMemory::Range known_;
  std::vector<Copy> copies_;
  std::array<uint64_t, kLanes> committed_{};
  std::vector<Store> stores_;
  std::vector<ProductReads> product_reads_;
  uint64_t committed_products_ = 0;
};

}  // namespace emulated
