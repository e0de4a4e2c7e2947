// Elapsed seconds by a monotonic clock.
#pragma once

#include <chrono>
#include <utility>

namespace tandem {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Returns the seconds since the last lap, or since construction, and begins the next lap.
  double lap() {
    const Clock::time_point last = std::exchange(begin_, Clock::now());
    return std::chrono::duration<double>(begin_ - last).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem
