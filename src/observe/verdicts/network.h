// Is the network the bottleneck? By the time that steps wait for it, never by megabytes a second.
//
// What the rank that computes longest waits is the network's doing; what the others wait beyond that is for that rank.
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: network_bound (waiting for the network is the largest part of a step), partly (a tenth of a step or more),
// no, slow_rank (ranks wait, but for another rank), single (one rank: there is no network), empty.
Verdict network(const RunData& run);

// Speed of the slowest usual port that could move this much; NaN beyond 400 Gbit/s.
double port_speed(double bits_per_second);

}  // namespace tandem
