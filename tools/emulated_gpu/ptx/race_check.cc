#include "emulated_gpu/ptx/race_check.h"

#include <algorithm>

namespace emulated {

RaceCheck::RaceCheck(size_t bytes, size_t warps)
    : warps_(warps),
      fenced_(warps, 0),
      known_(warps * warps, 0),
      writes_(bytes / kUnit + 1),
      reads_((bytes / kUnit + 1) * warps, 0) {
  for (size_t i = 0; i < warps; ++i) {
    known_[i * warps + i] = 1;
  }
}

void RaceCheck::meet(std::span<const size_t> warps) {
  std::vector<uint32_t> all(warps_, 0);
  for (const size_t warp : warps) {
    for (size_t other = 0; other < warps_; ++other) {
      all[other] = std::max(all[other], known_[warp * warps_ + other]);
    }
  }
  for (const size_t warp : warps) {
    std::ranges::copy(all, known_.begin() + static_cast<ptrdiff_t>(warp * warps_));
    ++known_[warp * warps_ + warp];
  }
}

int RaceCheck::read(size_t warp, size_t address, size_t bytes) {
  const uint32_t now = known_[warp * warps_ + warp];
  for (size_t unit = address / kUnit; unit <= (address + bytes - 1) / kUnit; ++unit) {
    if (unordered(warp, writes_[unit])) {
      return static_cast<int>(writes_[unit].warp);
    }
    reads_[unit * warps_ + warp] = now;
  }
  return kNoWarp;
}

int RaceCheck::write(size_t warp, size_t address, size_t bytes, By by) {
  const uint32_t now = known_[warp * warps_ + warp];
  for (size_t unit = address / kUnit; unit <= (address + bytes - 1) / kUnit; ++unit) {
    if (unordered(warp, writes_[unit])) {
      return static_cast<int>(writes_[unit].warp);
    }
    for (size_t other = 0; other < warps_; ++other) {
      if (other != warp && !knows(warp, other, reads_[unit * warps_ + other])) {
        return static_cast<int>(other);
      }
    }
    writes_[unit] = {now, static_cast<uint16_t>(warp), by};
  }
  return kNoWarp;
}

RaceCheck::Clock RaceCheck::release(size_t warp) {
  const auto own = known_.begin() + static_cast<ptrdiff_t>(warp * warps_);
  Clock clock(own, own + static_cast<ptrdiff_t>(warps_));
  ++known_[warp * warps_ + warp];
  return clock;
}

void RaceCheck::acquire(size_t warp, const Clock& clock) {
  for (size_t other = 0; other < clock.size(); ++other) {
    uint32_t& known = known_[warp * warps_ + other];
    known = std::max(known, clock[other]);
  }
}

void RaceCheck::join(Clock& clock, const Clock& other) {
  clock.resize(std::max(clock.size(), other.size()), 0);
  for (size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

void RaceCheck::fence(size_t warp) { fenced_[warp] = known_[warp * warps_ + warp]++; }

int RaceCheck::unfenced(size_t address, size_t bytes) const {
  for (size_t unit = address / kUnit; unit <= (address + bytes - 1) / kUnit; ++unit) {
    const Write& write = writes_[unit];
    if (write.by == By::warp && write.stretch > fenced_[write.warp]) {
      return static_cast<int>(write.warp);
    }
  }
  return kNoWarp;
}

}  // namespace emulated
