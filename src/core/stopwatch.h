// Seconds by a clock that is never set back.
#pragma once

#include <chrono>
#include <utility>

namespace tandem {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Seconds since the last lap, or since the beginning; the next one begins.
  double lap() {
    const Clock::time_point last = std::exchange(begin_, Clock::now());
    return std::chrono::duration<double>(begin_ - last).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tandem
