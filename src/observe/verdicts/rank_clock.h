// Where the time, bytes and arithmetic of each rank's steps went, since the run was last started: another start may be
// on other machines.
#pragma once

#include <string>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

constexpr double kWorth = 0.1;  // worth a word: a tenth of the time is what a user could win back

struct RankClock {
  int rank = 0;
  SetupPoint setup;
  std::vector<TrainPoint> windows;  // the first left out where there are 5: it has the warm-up
  double steps = 0;
  double pauses = 0;  // seconds of validations and checkpoints, in all
  // Of a mean step: seconds, bytes, FLOPs.
  double step = 0, compute = 0, communication = 0, transfer = 0, data = 0, idle = 0, sent = 0, received = 0, flops = 0;
  double dead_rows = kUnknown;  // share of the rows that hold no token

  std::string name() const;                                           // "rank 3 on gpu2"
  double own() const { return compute + data; }                       // what it takes by itself
  double wall() const { return step * steps + pauses; }               // seconds of all windows
  double rate() const { return step > 0 ? flops / step : kUnknown; }  // FLOP/s within steps
};

// Ranks with at least one step, rising.
std::vector<RankClock> clocks_of(const RunData& run);

// As the setup records say, or as many as there are metrics of.
int ranks_of(const RunData& run);

// Probes of the rank, since its last start, as one point.
ProbePoint probed(const RankMetrics& metrics);
// The same, of stretches of time that were all steps: neither starting, validation nor checkpoint. All where such are
// few.
ProbePoint probed_in_steps(const RankMetrics& metrics);

// By the number of windows: 20 give high, 5 medium.
Confidence confidence_by(size_t windows);

}  // namespace tandem
