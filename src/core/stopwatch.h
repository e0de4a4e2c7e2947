// Elapsed time by a monotonic clock, in seconds.
#pragma once

#include <chrono>
#include <utility>

namespace tandem::inline core {

inline double to_seconds(std::chrono::duration<double> time) { return time.count(); }

class Stopwatch {
 public:
  double seconds() const { return to_seconds(Clock::now() - begin_); }

  // Returns the seconds since the last lap, or since construction, and begins the next lap.
  double lap() {
    const Clock::time_point last = std::exchange(begin_, Clock::now());
    return to_seconds(begin_ - last);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem::inline core
