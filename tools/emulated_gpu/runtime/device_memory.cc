#include "emulated_gpu/runtime/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "emulated_gpu/error.h"

namespace emulated {

namespace {

constexpr size_t kAlignment = 256;  // CUDA's
constexpr size_t kMargin = 4096;    // on both sides

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceMemory::DeviceMemory() {
  const char* const bytes = std::getenv("EMULATED_GPU_MEMORY");
  total_ = bytes == nullptr ? size_t{4} << 30 : std::stoull(bytes);
}

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory;  // outlives all that frees
  return *memory;
}

size_t DeviceMemory::free() const {
  const std::lock_guard lock(mutex_);
  return total() - used_;
}

void* DeviceMemory::take(size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex_);
  if (!pinned && bytes > total() - used_) {
    return nullptr;
  }
  auto* const whole = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded(bytes) + 2 * kMargin));
  if (whole == nullptr) {
    return nullptr;
  }
  std::byte* const place = whole + kMargin;
  std::memset(place, 0xFF, bytes);
  const auto begin = reinterpret_cast<uint64_t>(place);
  blocks_[begin] = {begin + bytes, pinned};
  used_ += pinned ? 0 : bytes;
  return place;
}

void DeviceMemory::give(void* place) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(place));
  if (found != blocks_.end()) {
    used_ -= found->second.pinned ? 0 : found->second.end - found->first;
    blocks_.erase(found);
    std::free(static_cast<std::byte*>(place) - kMargin);
  }
}

DeviceMemory::Range DeviceMemory::find(uint64_t address, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin() || address + bytes > (--found)->second.end) {
    return {};
  }
  return {found->first, found->second.end};
}

void DeviceMemory::require_inside(const void* place, size_t pitch, size_t width, size_t rows, const char* what) const {
  if (rows > 0 && width > 0) {
    const size_t bytes = (rows - 1) * pitch + width;
    const Range range = find(reinterpret_cast<uint64_t>(place), bytes);
    require(range.begin != range.end, "{} {} bytes at {}, which are not all of one allocation of the GPU", what, bytes,
            place);
  }
}

}  // namespace emulated
