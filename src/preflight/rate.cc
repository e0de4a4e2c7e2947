#include "preflight/rate.h"

#include <algorithm>

#include "core/stopwatch.h"

namespace tandem::preflight {

double measure_rate(dist::Communicator& control, double seconds, int64_t amount,
                    const std::function<void(int64_t)>& work) {
  constexpr double kEnough = 0.5;  // of the time asked for
  constexpr double kMostGrowth = 8;
  for (;;) {
    control.barrier();
    const Stopwatch watch;
    work(amount);
    control.barrier();
    double taken = watch.seconds();
    control.broadcast(host_view(&taken, 1, 1), 0);
    if (taken >= kEnough * seconds) {
      return static_cast<double>(amount) / taken;
    }
    const double growth = std::clamp(seconds / std::max(taken, 1e-6), 1.5, kMostGrowth);
    amount = static_cast<int64_t>(static_cast<double>(amount) * growth) + 1;
  }
}

}  // namespace tandem::preflight
