// The emulated GPU's memory: the host's, in ranges that are known, so that an access outside of them is noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace emulated {

class DeviceMemory {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
  };

  static DeviceMemory& instance();

  size_t total() const { return total_; }  // bytes: EMULATED_GPU_MEMORY, else 4 GiB
  size_t free() const;
  // Memory that a kernel can reach, full of NaN; nullptr if there is not enough. Between two ranges lies a margin that
  // belongs to neither. What is pinned does not count.
  void* take(size_t bytes, bool pinned);
  void give(void* place);
  // The range with all of these bytes; an empty one if there is none.
  Range find(uint64_t address, size_t bytes) const;
  // Fails unless all bytes of `rows` rows, `pitch` bytes apart, are in one range. `what` as in "a copy reads".
  void require_inside(const void* place, size_t pitch, size_t width, size_t rows, const char* what) const;

 private:
  struct Block {
    uint64_t end = 0;
    bool pinned = false;
  };
  DeviceMemory();

  size_t total_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;  // by where they begin
  size_t used_ = 0;
};

}  // namespace emulated
