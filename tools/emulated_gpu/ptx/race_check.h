// Whether warps of a block meet between their accesses to the same shared memory, of which one writes.
//
// Every warp counts the stretches between its barriers, and knows of each other warp up to which stretch it has waited
// for it; an access is remembered with its warp's stretch (vector clocks). Lanes of one warp are not told apart. What
// the copy engine and the group products do is done by the warp that asks for it, but sees what warps have written only
// behind their fence.proxy.async.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace emulated {

class RaceCheck {
 public:
  static constexpr int kNoWarp = -1;
  using Clock = std::vector<uint32_t>;  // by warp: the stretch up to which it is known
  enum class By : uint8_t { warp, engine };

  RaceCheck(size_t bytes, size_t warps);

  // At a barrier, and at the beginning of a block, which all its warps wait for.
  void meet(std::span<const size_t> warps);
  // The warp whose access may come before or after this one; kNoWarp if all are in order.
  int read(size_t warp, size_t address, size_t bytes);
  int write(size_t warp, size_t address, size_t bytes, By by = By::warp);

  // What the warp has done so far, for others to wait for; a new stretch begins.
  Clock release(size_t warp);
  void acquire(size_t warp, const Clock& clock);
  static void join(Clock& clock, const Clock& other);
  uint32_t stretch(size_t warp) const { return known_[warp * warps_ + warp]; }
  // Whether the warp has waited for what the other one did up to this stretch.
  bool knows(size_t warp, size_t other, uint32_t stretch) const { return stretch <= known_[warp * warps_ + other]; }

  // fence.proxy.async
  void fence(size_t warp);
  // A warp that has written there and not come to its fence since; kNoWarp if there is none.
  int unfenced(size_t address, size_t bytes) const;

 private:
  static constexpr size_t kUnit = 2;  // bytes: warps that write neighbouring single bytes count as a race

  struct Write {
    uint32_t stretch = 0;
    uint16_t warp = 0;
    By by = By::engine;
  };

  bool unordered(size_t warp, const Write& write) const {
    return write.warp != warp && !knows(warp, write.warp, write.stretch);
  }

  size_t warps_;
  std::vector<uint32_t> fenced_;  // by warp: the stretch that its last fence ended
  std::vector<uint32_t> known_;   // [warp, other]: the stretch up to which it has waited; of itself the present one
  std::vector<Write> writes_;     // the last one of each unit
  std::vector<uint32_t> reads_;   // [unit, warp]: stretch of the last one
};

}  // namespace emulated
