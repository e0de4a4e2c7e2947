// What a step will take, from what was measured: the parts of a step by themselves, and the ranks' sums by themselves.
// Pure functions.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace tandem::preflight {

// A step as it is without any network: when each of its messages could start, and when its parts are done.
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

// Adding up over the ranks.
struct NetworkModel {
  double message_seconds = 0;        // for each message, however small
  double bytes_per_second = 0;       // of the buffers added up, while nobody computes
  double busy_bytes_per_second = 0;  // while all compute
  double lost_per_byte = 0;          // seconds of computing that a byte costs while both go on (cores are shared)
};

struct Forecast {
  double step = 0;           // seconds
  double compute = 0;        // of it, without any network
  double communication = 0;  // all messages one after the other
  double exposed = 0;        // step - compute: waiting for the network, and computing slowed down by it
};

// The one in the middle in the order of `by`; of two the greater.
template <class Value, class By>
Value middle_of(std::vector<Value> all, By by) {
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle, {}, by);
  return *middle;
}

// The queue of messages: each starts when it is ready and the one before is done; the rest of the step is computed
// beside it. What ends after the backward pass is exposed.
Forecast forecast(const StepTimeline& step, const NetworkModel& network);
// The median of several steps.
Forecast forecast(const std::vector<StepTimeline>& steps, const NetworkModel& network);

// ---- changed circumstances
// Gradients of so many times the bytes.
std::vector<StepTimeline> with_gradients(std::vector<StepTimeline> steps, double factor);
// As many micro-batches of the present size in a step.
std::vector<StepTimeline> with_micro_batches(std::vector<StepTimeline> steps, int micro_batches);
// So many times as fast, where the network is what limits.
NetworkModel at_rate(NetworkModel network, double factor);
NetworkModel infinitely_fast();

}  // namespace tandem::preflight
