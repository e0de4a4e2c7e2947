#include "preflight/forecast.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace tandem::preflight {

namespace {

constexpr double kSlowest = 0.05;  // of computing beside communication

// Where a step is: `now` on the clock, and how much of its forward and backward pass is computed.
struct Progress {
  double now = 0;
  double computed = 0;
};

// One message, beside what is left to compute until `end`.
void send(Progress& at, const TimedMessage& message, const NetworkModel& network, double end) {
  const double alone = network.message_seconds + message.bytes / network.bytes_per_second;
  const double busy = network.message_seconds + message.bytes / network.busy_bytes_per_second;
  const double speed = std::clamp(1 - network.lost_per_byte * message.bytes / std::max(busy, 1e-12), kSlowest, 1.0);
  const double until_end = (end - at.computed) / speed;
  if (until_end >= busy) {
    at.now += busy;
    at.computed += busy * speed;
    return;
  }
  const double left = 1 - until_end / std::max(busy, 1e-12);  // of the message, when all is computed
  at.now += until_end + left * alone;
  at.computed = end;
}

}  // namespace

Forecast forecast(const StepTimeline& step, const NetworkModel& network) {
  Progress at;
  double after = 0;
  Forecast result;
  for (const TimedMessage& message : step.messages) {
    const double alone = network.message_seconds + message.bytes / network.bytes_per_second;
    result.communication += alone;
    if (message.after_join) {
      after += alone;
      continue;
    }
    if (at.computed < message.ready) {
      at.now += message.ready - at.computed;
      at.computed = message.ready;
    }
    send(at, message, network, std::max(step.backward_end, message.ready));
  }
  at.now += std::max(0.0, step.backward_end - at.computed);
  result.compute = step.compute();
  result.step = at.now + after + step.update + step.overhead;
  result.exposed = std::max(0.0, result.step - result.compute);
  return result;
}

Forecast forecast(const std::vector<StepTimeline>& steps, const NetworkModel& network) {
  require(!steps.empty(), "no step was timed");
  std::vector<Forecast> all;
  all.reserve(steps.size());
  for (const StepTimeline& step : steps) {
    all.push_back(forecast(step, network));
  }
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end(),
                   [](const Forecast& a, const Forecast& b) { return a.step < b.step; });
  return *middle;
}

StepTimeline with_gradients(StepTimeline step, double factor) {
  for (TimedMessage& message : step.messages) {
    message.bytes *= message.gradients ? factor : 1;
  }
  return step;
}

StepTimeline with_micro_batches(StepTimeline step, int micro_batches) {
  const double before = (micro_batches - 1) * step.backward_end;
  for (TimedMessage& message : step.messages) {
    message.ready += before;
  }
  step.backward_end += before;
  return step;
}

NetworkModel at_rate(NetworkModel network, double factor) {
  network.bytes_per_second *= factor;
  network.busy_bytes_per_second *= factor;
  return network;
}

NetworkModel infinitely_fast() {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return {0, kInfinite, kInfinite, 0};
}

}  // namespace tandem::preflight
