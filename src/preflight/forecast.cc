#include "preflight/forecast.h"

#include <limits>

#include "core/error.h"

namespace tandem::preflight {

namespace {

constexpr double kSlowest = 0.05;  // least speed of computing beside communication, over its speed alone

// Where a step is: `now` on the clock, and how much of its forward and backward pass is computed.
struct Progress {
  double now = 0;
  double computed = 0;
};

// Sends one message, while what is left until `end` is computed.
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
  const double left = 1 - until_end / std::max(busy, 1e-12);  // share of the message left when all is computed
  at.now += until_end + left * alone;
  at.computed = end;
}

}  // namespace

StepTimeline slowest(const std::vector<StepTimeline>& by_rank) {
  require(!by_rank.empty(), "no rank has timed a step");
  StepTimeline all = by_rank.front();
  for (const StepTimeline& own : by_rank) {
    require(own.messages.size() == all.messages.size(), "ranks send {} and {} messages in one step",
            own.messages.size(), all.messages.size());
    for (size_t i = 0; i < own.messages.size(); ++i) {
      all.messages[i].ready = std::max(all.messages[i].ready, own.messages[i].ready);
    }
    all.backward_end = std::max(all.backward_end, own.backward_end);
    all.update = std::max(all.update, own.update);
    all.overhead = std::max(all.overhead, own.overhead);
  }
  return all;
}

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
  for (const StepTimeline& step : steps) {
    all.push_back(forecast(step, network));
  }
  return middle_of(all, &Forecast::step);
}

std::vector<StepTimeline> with_gradients(std::vector<StepTimeline> steps, double factor) {
  for (StepTimeline& step : steps) {
    for (TimedMessage& message : step.messages) {
      message.bytes *= message.gradients ? factor : 1;
    }
  }
  return steps;
}

std::vector<StepTimeline> with_micro_batches(std::vector<StepTimeline> steps, int micro_batches) {
  for (StepTimeline& step : steps) {
    const double before = (micro_batches - 1) * step.backward_end;
    for (TimedMessage& message : step.messages) {
      message.ready += before;
    }
    step.backward_end += before;
  }
  return steps;
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
