#include "preflight/step_trial.h"

#include <algorithm>

#include "core/stopwatch.h"
#include "train/gradient_communicator.h"
#include "train/host_copy.h"
#include "train/setup.h"

namespace tandem {

namespace {

double seconds_between(uint64_t begin, uint64_t end) {
  return static_cast<double>(static_cast<int64_t>(end - begin)) * 1e-9;
}

}  // namespace

StepTrial::StepTrial(Team& team, Backend& backend, const Prepared& data, const TrainConfig& config)
    : config_(config),
      backend_(backend),
      model_(backend, config.model),
      weights_(backend, model_.parameters(), compute_type(config.precision, backend), config.optimizer.ema_decay > 0,
               TeamUpdate::unit(team.size())),
      own_communicator_(make_gradient_communicator(team, backend, config.dist)),
      communicator_(own_communicator_ ? *own_communicator_ : team.communicator()),
      timing_(backend, communicator_),
      team_update_(make_team_update(backend, model_, weights_, timing_, config.dist)),
      adam_(backend, team_update_ ? team_update_->moments() : model_.parameters().flat_size(),
            {config.optimizer.adam, config.optimizer.max_gradient_norm, config.optimizer.ema_decay}),
      plan_(plan_memory(backend, compute(), data.train, config, team.size())),
      batcher_(data.train, plan_.batch, team.rank(), team.size()),
      stepper_(backend, model_, weights_, adam_, config.label_smoothing, plan_.layouts,
               team_update_ ? &*team_update_ : nullptr),
      batches_([this] { return batcher_.next(); }) {
  if (plan_.arena_bytes > 0) {
    stepper_.reserve(plan_.arena_bytes);
  }
  initialize(HostCopy(backend, weights_.masters(), HostCopy::write).view(), model_.parameters(), config.seed);
  weights_.refresh_copy();
  if (!weights_.average().empty()) {
    backend.copy(weights_.average(), weights_.masters());
  }
  backend.fill_zero(adam_.m());
  backend.fill_zero(adam_.v());
}

int64_t StepTrial::usual_message() const {
  const auto bucket = static_cast<int64_t>(config_.dist.bucket_mb * (1 << 20)) / static_cast<int64_t>(sizeof(float));
  return std::min(bucket, model_.parameters().flat_size());
}

StepTimeline StepTrial::run_step() {
  const Stopwatch watch;
  const TrainStep step = batches_.next();
  StepState state{.seed = config_.seed,
                  .step = static_cast<uint32_t>(steps_),
                  .loss_scale = 1.0F / static_cast<float>(step.target_tokens),
                  .learning_rate = 0};  // nothing is learned: the ranks' gradients are not added up
  timing_.begin_step();
  stepper_.give(step, state);
  const StepClock clock = stepper_.take().clock;
  StepTimeline timeline;
  const bool alone = timing_.size() == 1;
  const uint64_t joining = alone ? clock.end : clock.joining;
  const uint64_t joined = alone ? clock.end : clock.joined;
  timeline.backward_end = seconds_between(clock.begin, joining);
  timeline.update = seconds_between(joined, clock.end);
  if (!backend_.traits().replays) {  // elsewhere the host works while the device does
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
  traffic_ = stepper_.planned_traffic(step);
  return timeline;
}

}  // namespace tandem
