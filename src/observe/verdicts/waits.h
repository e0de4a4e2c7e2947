// Where ranks that exchange gradients wait, and for what.
#pragma once

#include <vector>

#include "observe/verdicts/rank_clock.h"

namespace tandem {

// Seconds of a mean step.
struct Waits {
  double step = 0;
  double compute = 0, data = 0;  // of the rank that the others wait for
  double exposed = 0;            // for the network: what that rank waits
  double others = 0;             // for slower ranks: what the ranks wait beyond it, on average
  double transfer = 0;           // that transfers take, hidden or not; at least `exposed`
  bool measured = false;         // transfer is measured
};

// Window by window, as another rank may be the slowest in each; by means where the ranks' windows do not match. Wants
// at least one rank.
Waits waits_of(const std::vector<RankClock>& clocks);

}  // namespace tandem
