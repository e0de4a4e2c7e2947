// What a step will take, from two measurements: of the parts of a step alone, and of the ranks' sums alone. Pure
// functions.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace tandem::preflight {

// A step as it is without any network: when each of its messages could start, and when its parts are done.
struct TimedMessage {
  double ready = 0;         // seconds from the step's beginning
  double bytes = 0;         // mean of bytes sent and received; half the buffer for reduce-scatter and all-gather
  bool gradients = false;   // gradients are sent in the type of the wire
  bool after_join = false;  // it is part of the update, which waits for it
};

struct StepTimeline {
  std::vector<TimedMessage> messages;  // messages in the order in which they are sent
  double backward_end = 0;             // seconds from the beginning until all gradients of this rank are there
  double update = 0;                   // seconds from the sums to the new weights
  double overhead = 0;                 // seconds between two steps: waiting for data, the host's own work

  double compute() const { return backward_end + update + overhead; }
};

// Merges the ranks' timelines of the same step: they start a message together, when the last of them is ready.
StepTimeline slowest(const std::vector<StepTimeline>& by_rank);

// The cost of sums over the ranks.
struct NetworkModel {
  double message_seconds = 0;        // cost of a message, however small
  double bytes_per_second = 0;       // bytes of the buffers summed up, while no rank computes
  double busy_bytes_per_second = 0;  // the same while all ranks compute
  double lost_per_byte = 0;          // seconds of computing that a byte costs while both run (cores are shared)
};

struct Forecast {
  double step = 0;           // seconds
  double compute = 0;        // seconds without any network
  double communication = 0;  // seconds of all messages, one after the other
  double exposed = 0;        // step - compute: waiting for the network, and computing slowed down by it
};

// The middle one in the order of `by`; of two the greater.
template <class Value, class By>
Value middle_of(std::vector<Value> all, By by) {
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle, {}, by);
  return *middle;
}

// Simulates the queue of messages: each starts when it is ready and the one before is done, while the rest of the step
// is computed. What ends after the backward pass is exposed.
Forecast forecast(const StepTimeline& step, const NetworkModel& network);
// The median forecast of several steps.
Forecast forecast(const std::vector<StepTimeline>& steps, const NetworkModel& network);

// ---- changed circumstances
// The steps with `factor` times the bytes of gradients.
std::vector<StepTimeline> with_gradients(std::vector<StepTimeline> steps, double factor);
// The steps with as many micro-batches of the present size.
std::vector<StepTimeline> with_micro_batches(std::vector<StepTimeline> steps, int micro_batches);
// The network with `factor` times the bytes per second.
NetworkModel at_rate(NetworkModel network, double factor);
NetworkModel infinitely_fast();

}  // namespace tandem::preflight
