// A step as it is without any network: when each of its messages could start, and when its parts are done.
#pragma once

#include <vector>

namespace tandem::preflight {

struct TimedMessage {
  double ready = 0;         // seconds from the step's beginning
  double bytes = 0;         // mean of bytes sent and received; half the buffer for reduce-scatter and all-gather
  bool gradients = false;   // in the type of the wire
  bool after_join = false;  // part of the update, which waits for it
};

struct StepTimeline {
  std::vector<TimedMessage> messages;  // in the order in which they are sent
  double backward_end = 0;             // seconds from the beginning: all gradients of this rank are there
  double update = 0;                   // seconds from the sums to the new weights
  double overhead = 0;                 // seconds between two steps: waiting for data, the host's own work

  double compute() const { return backward_end + update + overhead; }
};

// Ranks start a message together, when the last of them is ready: the latest moment of each. by_rank: the same step.
StepTimeline slowest(const std::vector<StepTimeline>& by_rank);

}  // namespace tandem::preflight
