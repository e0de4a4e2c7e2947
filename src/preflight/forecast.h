// What a step will take, from what was measured: the parts of a step by themselves, and the ranks' sums by themselves.
// Pure functions.
#pragma once

#include <vector>

#include "preflight/timeline.h"

namespace tandem::preflight {

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

// The queue of messages: each starts when it is ready and the one before is done; the rest of the step is computed
// beside it. What ends after the backward pass is exposed.
Forecast forecast(const StepTimeline& step, const NetworkModel& network);
// The median of several steps.
Forecast forecast(const std::vector<StepTimeline>& steps, const NetworkModel& network);

// ---- changed circumstances
StepTimeline with_gradients(StepTimeline step, double factor);  // of so many times the bytes
StepTimeline with_micro_batches(StepTimeline step,
                                int micro_batches);         // as many micro-batches of the present size in a step
NetworkModel at_rate(NetworkModel network, double factor);  // so many times as fast, where the network is what limits
NetworkModel infinitely_fast();

}  // namespace tandem::preflight
