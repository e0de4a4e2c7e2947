// What the busiest host's link carried for the run.
#pragma once

#include <vector>

#include "observe/verdicts/rank_clock.h"

namespace tandem {

// Headers of a TCP segment over Ethernet with IPv4 and timestamps: 14 + 20 + 32 bytes; a bare acknowledgement is one.
constexpr double kHeaderBytes = 66;

struct LinkTraffic {
  double bytes_per_second = kUnknown;  // the busier direction, within steps, of the busiest host
  bool with_headers = false;           // as the interface counts, not the ranks
  int ranks = 1;                       // that share the interface
  bool one_host = false;               // all ranks are on it
  double stated_bits = kUnknown;       // its driver's speed
  double dropped = 0;                  // packets, all hosts
  // Sent by the interface without headers, over what the plan says; where each rank has a host of its own.
  double payload_over_planned = kUnknown;
};

// By the interfaces' counters, or without them by what the ranks count themselves.
LinkTraffic link_traffic(const RunData& run, const std::vector<RankClock>& clocks);

}  // namespace tandem
