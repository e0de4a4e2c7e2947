// The links between hosts, measured with the connections that ranks use.
#pragma once

#include <vector>

#include "dist/process_group.h"

namespace tandem::preflight {

// Between the first ranks of two hosts.
struct Link {
  int from = 0, to = 0;        // hosts, by number; from < to
  double there = 0, back = 0;  // payload bytes a second in each direction, one at a time
  double round_trip = 0;       // seconds, of a small message
  double clock_offset = 0;     // seconds that the clock of `to` is ahead
  double clock_error = 0;      // at most so far off
};

// Called by all ranks; every pair by itself, about `seconds` in all. The result is there on the pair's first rank.
std::vector<Link> measure_links(dist::ProcessGroup& group, dist::Communicator& control, double seconds);

}  // namespace tandem::preflight
