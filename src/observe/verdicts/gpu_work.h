// What the hardware does, by the arithmetic that it achieves and the power that it draws. "Utilisation" is the share of
// time in which any kernel ran; one that spins while it waits for the network counts, so it is never taken as work.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "observe/verdicts/exchange.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Means over ranks; NaN = not measured on any.
struct GpuWork {
  bool gpu = false;                             // else a CPU
  bool many_ranks = false;                      // the run has more than one
  size_t windows = 0;                           // of the first rank
  double achieved = kUnknown, peak = kUnknown;  // FLOP/s of a rank
  double lowest = kUnknown;                     // share of the peak, of the rank that has least
  int lowest_rank = -1;
  double idle = kUnknown;     // share of a step that waits for data or the network
  double between = kUnknown;  // share of a step that the device idles before it
  double waits_for_network = kUnknown;
  double dead_row_share = kUnknown;
  double power = kUnknown, power_limit = kUnknown, utilisation = kUnknown, clock = kUnknown;
  double throttled = kUnknown, capped = kUnknown;  // share of time: by a fault, by the power limit
  std::set<std::string> reasons{};                 // for being throttled

  double share() const { return achieved / peak; }
  double power_share() const { return power / power_limit; }
  bool spins() const;  // it is busy at little power, and steps wait
  // No step is faster than its own products; if it seems so, these were measured while something else ran.
  bool exceeds_peak() const { return share() > 1.03; }
};
GpuWork gpu_work_of(const RunData& run, const std::vector<RankClock>& clocks);

// Labels: working (from 40 % of the measured peak on, the level of record-holding trainings), partly (from 10 % on),
// hardly, spinning (busy by "utilisation", at little power and little arithmetic), empty. Also for a CPU.
Verdict gpu_work(const GpuWork& work);

}  // namespace tandem::observe
