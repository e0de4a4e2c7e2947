// What the network does, with the communicators that ranks use: the links between hosts, and what adding up over all
// ranks costs.
#pragma once

#include <functional>
#include <vector>

#include "backend/backend.h"
#include "dist/process_group.h"
#include "preflight/forecast.h"

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

// Bytes of an element of gradients, of its way there and its way back the mean: f64 come back as f32.
constexpr double wire_bytes(DType wire) { return wire == DType::f64 ? 6 : static_cast<double>(size_of(wire)); }

// Called by all ranks. `elements`: of a step's messages, which are sent one after the other, again and again, for about
// `seconds`; so the cost is right for their mixture of sizes. As if computing and sums did not slow each other down.
NetworkModel measure_sums(dist::Communicator& sums, dist::Communicator& control, backend::Backend& backend,
                          const std::vector<int64_t>& elements, DType wire, double seconds);

// Adds up over all ranks without pause, on a thread of its own, while this one does `work` again and again, until
// `work` has returned true on every rank. Gives messages a second. Host memory only.
double add_up_beside(dist::Communicator& sums, int64_t elements, DType wire, const std::function<bool()>& work);

}  // namespace tandem::preflight
