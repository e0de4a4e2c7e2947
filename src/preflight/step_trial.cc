#include "preflight/step_trial.h"

#include <algorithm>

#include "core/stopwatch.h"
#include "train/gradient_communicator.h"

namespace tandem::preflight {

namespace {

double seconds_between(uint64_t begin, uint64_t end) {
  return static_cast<double>(static_cast<int64_t>(end - begin)) * 1e-9;
}

}  // namespace

StepTrial::StepTrial(dist::ProcessGroup& group, backend::Backend& backend, const data::Prepared& data,
                     const train::TrainConfig& config)
    : config_(config),
      backend_(backend),
      own_communicator_(train::make_gradient_communicator(group, backend, config.dist)),
      communicator_(own_communicator_ ? *own_communicator_ : group.communicator()),
      timing_(backend, communicator_),
      learner_(backend, config, data.train, {group.communicator(), timing_}),
      batches_([this] { return learner_.batcher().next(); }) {
  learner_.begin();
}

int64_t StepTrial::usual_message() const {
  const auto bucket = static_cast<int64_t>(config_.dist.bucket_mb * (1 << 20)) / static_cast<int64_t>(sizeof(float));
  return std::min(bucket, learner_.model().parameters().flat_size());
}

StepTimeline StepTrial::run_step() {
  const Stopwatch watch;
  const data::TrainStep step = batches_.next();
  timing_.begin_step();
  // At rate 0 nothing is learned: the ranks' gradients are not added up.
  learner_.stepper().give(step, learner_.input_of(step, static_cast<int64_t>(steps_), 0));
  const train::StepClock clock = learner_.stepper().take().clock;
  StepTimeline timeline;
  const bool alone = timing_.size() == 1;
  const uint64_t joining = alone ? clock.end : clock.joining;
  const uint64_t joined = alone ? clock.end : clock.joined;
  timeline.backward_end = seconds_between(clock.begin, joining);
  timeline.update = seconds_between(joined, clock.end);
  if (learner_.stepper().usual_under_way() == 0) {  // elsewhere the host works while the device does
    timeline.overhead = watch.seconds() - clock.seconds();
  }
  for (const TimingCommunicator::Message& message : timing_.messages()) {
    timeline.messages.push_back({.ready = seconds_between(clock.begin, message.ready),
                                 .bytes = message.bytes,
                                 .gradients = message.gradients,
                                 .after_join = message.ready > joined});
  }
  ++steps_;
  source_tokens_ += static_cast<double>(step.source_tokens);
  target_tokens_ += static_cast<double>(step.target_tokens);
  epochs_ = step.epochs_done;
  traffic_ = learner_.stepper().planned_traffic(step);
  return timeline;
}

}  // namespace tandem::preflight
