// Measures the network with the communicators that ranks use: the links between hosts, and the cost of sums over all
// ranks.
#pragma once

#include <functional>
#include <vector>

#include "backend/backend.h"
#include "dist/process_group.h"
#include "preflight/forecast.h"

namespace tandem::preflight {

// A link between the first ranks of two hosts.
struct Link {
  int from = 0, to = 0;        // hosts, by number; from < to
  double there = 0, back = 0;  // payload bytes a second in each direction, one at a time
  double round_trip = 0;       // seconds for a small message
  double clock_offset = 0;     // seconds that the clock of `to` is ahead
  double clock_error = 0;      // largest error of clock_offset
};

// Called by all ranks; measures one pair at a time, about `seconds` in all. The pair's first rank gets the result.
std::vector<Link> measure_links(dist::ProcessGroup& group, dist::Communicator& control, double seconds);

// Bytes of a gradient's element, as the mean of both directions: f64 come back as f32.
constexpr double wire_bytes(DType wire) { return wire == DType::f64 ? 6 : static_cast<double>(size_of(wire)); }

// Called by all ranks. Sends a step's messages, of `elements` each, one after the other, again and again for `seconds`,
// so the cost is right for their mixture of sizes. Assumes that computing and sums do not slow each other down.
NetworkModel measure_sums(dist::Communicator& sums, dist::Communicator& control, backend::Backend& backend,
                          const std::vector<int64_t>& elements, DType wire, double seconds);

// Sums over all ranks without pause on another thread, while this one repeats `work` until it has returned true on
// every rank. Returns messages per second. Host memory only.
double add_up_beside(dist::Communicator& sums, int64_t elements, DType wire, const std::function<bool()>& work);

}  // namespace tandem::preflight
