// Where the time, bytes and arithmetic of each rank's steps went, since the run was last started: another start may be
// on other machines.
#pragma once

#include <string>
#include <vector>

#include "observe/run_reader.h"

namespace tandem::observe {

struct RankClock {
  int rank = 0;
  SetupPoint setup{};
  std::vector<TrainPoint> windows{};  // the first left out if there are 5: it has the warm-up
  TrainPoint sum{};                   // of the windows
  ProbePoint probe{};                 // of all time since the start

  std::string name() const;                                                          // "rank 3 on gpu2"
  double mean(double TrainPoint::*member) const { return sum.*member / sum.steps; }  // of a step
  double step() const { return sum.step_seconds() / sum.steps; }
  double own() const { return mean(&TrainPoint::compute_seconds) + mean(&TrainPoint::data_seconds); }  // by itself
  double pauses() const { return sum.pause_seconds(); }
  double wall() const { return step() * sum.steps + pauses(); }                           // seconds of all windows
  double rate() const { return step() > 0 ? sum.flops / sum.steps / step() : kUnknown; }  // FLOP/s within steps
};

// Ranks with at least one step, rising.
std::vector<RankClock> clocks_of(const RunData& run);

// As the setup records say, or as many as there are metrics of.
int ranks_of(const RunData& run);

// Probes of the rank, since its last start, as one point.
ProbePoint probed(const RankMetrics& metrics);
// The same, of stretches of time that were all steps: neither starting, validation nor checkpoint. All if such are few.
ProbePoint probed_in_steps(const RankMetrics& metrics);

}  // namespace tandem::observe
