// What the hardware does, by the arithmetic that it achieves and the power that it draws. "Utilisation" is the share of
// time in which any kernel ran; kernels that spin while they wait for the network count, so it is never taken as work.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "observe/verdicts/exchange.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Means over ranks; NaN = not measured on any.
struct GpuWork {
  bool gpu = false;                             // a GPU computes, else a CPU
  bool many_ranks = false;                      // the run has more than one
  size_t windows = 0;                           // windows of the first rank
  double achieved = kUnknown, peak = kUnknown;  // FLOP/s of a rank
  double lowest = kUnknown;                     // lowest share of the peak that a rank reaches
  int lowest_rank = -1;
  double idle = kUnknown;     // share of a step that waits for data or the network
  double between = kUnknown;  // time that the device idles before a step, over the step's
  double waits_for_network = kUnknown;
  double dead_row_share = kUnknown;
  double power = kUnknown, power_limit = kUnknown, utilisation = kUnknown, clock = kUnknown;
  double throttled = kUnknown, capped = kUnknown;  // share of time slowed down by a fault, by the power limit
  std::set<std::string> reasons{};                 // values of gpu_throttle while throttled

  double share() const { return achieved / peak; }
  double power_share() const { return power / power_limit; }
  bool spins() const;  // busy at little power, while steps wait
  // No step is faster than its own products: if it seems so, the peak was measured while something else ran.
  bool exceeds_peak() const { return share() > 1.03; }
  bool power_capped() const { return capped > kWorth; }
  bool many_dead_rows() const { return dead_row_share >= 0.03; }
  bool slowed_down() const { return throttled > 0.01; }
};
GpuWork gpu_work_of(const RunData& run, const std::vector<RankClock>& clocks);

// Labels: working (from 40 % of the measured peak on, the level of record-holding trainings), partly (from 10 % on),
// hardly, spinning (busy by "utilisation", at little power and little arithmetic), empty. Also for a CPU.
Verdict gpu_work(const GpuWork& work);

}  // namespace tandem::observe
