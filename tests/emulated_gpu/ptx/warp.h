// A warp at work: 32 lanes in lockstep. Lanes that a branch parts wait for one another where all their ways meet.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "emulated_gpu/ptx/program.h"
#include "emulated_gpu/ptx/race_check.h"
#include "emulated_gpu/runtime/device_memory.h"

namespace tandem::emulated {

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// What all warps of a launch read.
struct LaunchedKernel {
  const Program& program;
  Size3 grid, block;
  std::span<const std::byte> arguments;
};

class Warp {
 public:
  enum class State : uint8_t { ready, at_barrier, ended };

  Warp(const LaunchedKernel& launch, std::vector<std::byte>& shared, RaceCheck& races);

  // At the beginning of a block: the warp's number in it.
  void start(Size3 block, uint32_t number);
  // Until a barrier or the end.
  State run();
  uint32_t barrier() const { return barrier_; }          // where it waits
  uint32_t barrier_threads() const { return threads_; }  // that meet there; 0 = all of the block

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
    if (address < known_.begin || address + bytes > known_.end) {
      find_range(address, bytes, lane);
    }
    return reinterpret_cast<std::byte*>(address);  // NOLINT: an address of the host
  }
  enum class Access : uint8_t { read, write, atomic };
  std::byte* shared(uint64_t address, size_t bytes, int lane, Access access) {
    check_inside("shared", address, bytes, kDriversSharedMemory, shared_.size(), lane);
    const int other = access == Access::read    ? races_.read(number_, address, bytes)
                      : access == Access::write ? races_.write(number_, address, bytes)
                                                : RaceCheck::kNoWarp;
    if (other != RaceCheck::kNoWarp) {
      fail_race(access, address, other, lane);
    }
    return shared_.data() + address;
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

  // ---- copies to shared memory that arrive when they are waited for
  struct Copy {
    int lane;
    uint64_t group, to, from;
    size_t bytes, size;  // those behind `bytes` become 0
  };
  void begin_copy(Copy copy);
  void commit_copies(uint32_t lanes);
  void await_copies(uint32_t lanes, uint64_t groups_left);

 private:
  struct Part {
    uint32_t pc, join, lanes;
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

  const LaunchedKernel& launch_;
  std::vector<std::byte>& shared_;
  RaceCheck& races_;
  std::vector<std::byte> registers_, local_;
  std::vector<Part> parts_;  // the last one runs
  Size3 block_;
  uint32_t number_ = 0, live_ = 0;
  uint32_t barrier_ = 0, threads_ = 0;
  uint32_t now_ = 0;  // instruction, for messages
  DeviceMemory::Range known_;
  std::vector<Copy> copies_;
  std::array<uint64_t, kLanes> committed_{};
};

}  // namespace tandem::emulated
