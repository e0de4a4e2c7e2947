// What the network does, with the communicators that ranks use: the links between hosts, and what adding up over all
// ranks costs.
#pragma once

#include <atomic>
#include <thread>
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

// Adds up over all ranks without pause, on a thread of its own, until every rank has called finish(). Host memory only.
class ConstantSums {
 public:
  ConstantSums(dist::Communicator& sums, int64_t elements, DType wire);
  ~ConstantSums();  // calls finish(), and waits for the other ranks
  ConstantSums(const ConstantSums&) = delete;
  ConstantSums& operator=(const ConstantSums&) = delete;

  void finish() { finish_ = true; }
  bool ended() const { return ended_; }  // all ranks have called finish()
  double messages_per_second() const;    // once ended

 private:
  void run();

  dist::Communicator& sums_;
  const int64_t elements_;
  const DType wire_;
  std::atomic<bool> finish_ = false, ended_ = false;
  std::string error_;
  double seconds_ = 0;
  int64_t messages_ = 0;
  std::thread thread_;  // last, so that all it uses is there when it starts
};

}  // namespace tandem::preflight
