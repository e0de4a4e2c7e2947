#include "train/training.h"

#include "backend/checked/checked_backend.h"
#include "core/human.h"
#include "core/log.h"
#include "core/philox.h"
#include "train/gradient_communicator.h"
#include "train/setup.h"
#include "train/step_flops.h"

namespace tandem {

namespace {

constexpr size_t kStepsUnderWay = 3;  // enough that the device never waits for the host

constexpr uint32_t kCheckPurpose = 0xC4EC;  // philox's counter of the choice of steps to check

// `checked` becomes what can check the backend's ops, if a share of the steps is to be checked.
std::unique_ptr<Backend> backend_for(const TrainConfig& config, double check_share, CheckedBackend*& checked) {
  auto backend = make_backend(config.device, config.threads);
  if (check_share == 0) {
    return backend;
  }
  require(backend->traits().replays, "there is no GPU whose arithmetic could be checked");
  auto both = std::make_unique<CheckedBackend>(std::move(backend), config.threads);
  checked = both.get();
  return both;
}

// Weights, gradients and what else is as large, or one sentence with both figures where that does not fit a GPU.
ModelState make_state(Backend& backend, const Transformer& model, const TrainConfig& config, int ranks) {
  const DType compute = compute_type(config.precision, backend);
  const bool average = config.optimizer.ema_decay > 0;
  const auto elements = static_cast<double>(model.parameters().flat_size());
  const double moments = 2 * elements * sizeof(float) / (config.dist.shard_optimizer ? ranks : 1);
  const double bytes = elements * (sizeof(float) * (average ? 3 : 2) + (compute == DType::bf16 ? 2 : 0)) + moments;
  const auto free = static_cast<double>(backend.memory_sizes().free);
  require(!backend.traits().replays || bytes < free,
          "the model does not fit: its {} parameters take {} with gradients and the optimizer's moments, and "
          "{} are free; choose a smaller model (nvidia-smi shows who else has memory)",
          grouped(model.parameters().count()), human_bytes(bytes), human_bytes(free));
  return {backend, model.parameters(), compute, average, TeamUpdate::unit(ranks)};
}

// The size that the rounds of this run had, if it has a checkpoint; a wish, so what cannot be read is none.
RoundCapacity saved_round(const TeamRun& run, const RunDirectory& directory) {
  const auto latest = directory.root() / "latest";
  if (run.starts_over() || !std::filesystem::exists(latest)) {
    return {};
  }
  try {
    const CheckpointState state = load_checkpoint(latest, false).state;
    return {state.round_source, state.round_target, 0};
  } catch (const Error&) {
    return {};
  }
}

// The rounds of all ranks have one size, the smallest that any of them has room for; so a checkpoint knows it, and a
// rank that comes to a step with more memory computes the same bits.
MemoryPlan plan_together(const Backend& backend, DType compute, const Corpus& corpus, const TrainConfig& config,
                         TeamRun& run, RoundCapacity before) {
  const auto largest = [&run](int64_t value) { return static_cast<int64_t>(run.largest(static_cast<double>(value))); };
  before = {largest(before.source), largest(before.target), 0};
  MemoryPlan plan = plan_memory(backend, compute, corpus, config, run.size(), before);
  const RoundCapacity own = plan.layouts.empty() ? RoundCapacity{INT32_MAX, INT32_MAX, 0} : plan.batch.round;
  const RoundCapacity smallest{-largest(-own.source), -largest(-own.target), 0};
  if (smallest.source == own.source && smallest.target == own.target) {
    return plan;
  }
  return plan_memory(backend, compute, corpus, config, run.size(), smallest);
}

}  // namespace

Training::Training(const TrainConfig& config, Prepared data, TeamRun& team_run, double check_share)
    : config_(config),
      team_run_(team_run),
      run_(team_run.directory()),
      data_(std::move(data)),
      check_share_(check_share),
      backend_(backend_for(config, check_share, checked_)),
      model_(*backend_, config_.model),
      weights_(make_state(*backend_, model_, config_, team_run.size())),
      own_communicator_(make_gradient_communicator(team_run.team(), *backend_, config_.dist)),
      communicator_(own_communicator_ ? *own_communicator_ : team_run.team().communicator()),
      team_update_(make_team_update(*backend_, model_, weights_, communicator_, config_.dist)),
      adam_(*backend_, team_update_ ? team_update_->moments() : model_.parameters().flat_size(),
            {config_.optimizer.adam, config_.optimizer.max_gradient_norm, config_.optimizer.ema_decay}),
      plan_(plan_together(*backend_, weights_.weights().compute.dtype, data_.train, config_, team_run,
                          saved_round(team_run, run_))),
      batcher_(data_.train, plan_.batch, team_run.rank(), team_run.size()),
      stepper_(*backend_, model_, weights_, adam_, config_.label_smoothing, plan_.layouts, team_update()),
      validator_(*backend_, model_, data_, config_, team_run) {
  log::info("{}; {} parameters, {}", backend_->description(), grouped(model_.parameters().count()),
            weights_.copy().empty() ? "f32" : "bf16 with f32 masters");
  if (plan_.arena_bytes > 0) {
    log::info("{}", plan_.description);
    stepper_.reserve(plan_.arena_bytes);
  }
  log::info("{} training pairs, {} + {} pieces; {} pairs longer than {} pieces are left out",
            grouped(data_.train.size()), grouped(data_.train.tokens(Side::source)),
            grouped(data_.train.tokens(Side::target)), grouped(batcher_.too_long()), config_.model.max_length);
  log::info("learning rate: {}", explain(config_.schedule));
}

TrainOutcome Training::run() {
  agree();
  std::optional<std::string> end = end_reached();
  while (!end && stop_signal_ == 0) {
    give_step();
    while (given_.size() > (backend_->traits().replays ? kStepsUnderWay : 0)) {
      take_result();
    }
    if (!pause_due()) {
      continue;
    }
    take_all_results();
    agree();
    end = end_reached();
    if (stop_signal_ == 0 && (validation_due() || (end && state_.metrics_step != state_.step))) {
      validate();
      end = end_reached();
    }
    if (checkpoint_due() || save_asked_) {
      save();
    }
    counted_ = Clock::now();
    ended_ = 0;
  }
  take_all_results();
  agree();
  if (saved_step_ != state_.step) {
    save();
  }
  const std::string reason = end ? *end : fmt::format("stopped by signal {}", stop_signal_);
  event("end", reason);
  observer_->finish(end.has_value());
  log::status("");
  return {reason, state_.step, end ? 0 : stop_signal_, state_.metrics};
}

void Training::give_step() {
  const auto begin = Clock::now();
  GivenStep given;
  given.step = batches_->next();
  const double waited = seconds_since(begin);
  window_.data_seconds += waited;
  window_.compute_seconds -= waited;  // count() adds the whole step

  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(this->given());
  state.loss_scale = 1.0F / static_cast<float>(given.step.target_tokens);
  given.counts = counts_of(given.step);
  state.learning_rate = static_cast<float>(given.counts.learning_rate);
  given.pause = wants_pause();
  state.pause = given.pause ? 1 : 0;
  give_to_backend(given.step, state);
  last_epochs_done_ = given.step.epochs_done;
  given.step.rounds.clear();
  given_.push_back(std::move(given));
}

TrainPoint Training::counts_of(const TrainStep& step) const {
  TrainPoint counts;
  counts.records = 0;  // a part of one
  counts.steps = 1;
  counts.step = given() + 1;
  counts.epoch = step.epochs_done;
  counts.learning_rate = learning_rate(config_.schedule, given()) * state_.learning_rate_factor;
  counts.pairs = static_cast<double>(step.pairs);
  counts.source_tokens = static_cast<double>(step.source_tokens);
  counts.target_tokens = static_cast<double>(step.target_tokens);
  counts.flops = step_flops(config_.model, step);
  counts.rows = static_cast<double>(stepper_.rows_of(step));
  counts.dead_rows = counts.rows - static_cast<double>(tokens_of(step));
  const Traffic planned = stepper_.planned_traffic(step);
  counts.sent_bytes = static_cast<double>(planned.sent);
  counts.received_bytes = static_cast<double>(planned.received);
  return counts;
}

void Training::give_to_backend(const TrainStep& step, const StepState& state) {
  const float drawn = uniform(philox(state.seed, state.step, kCheckPurpose, 0, 0)[0]);
  if (!(static_cast<double>(drawn) < check_share_)) {
    stepper_.give(step, state);
    return;
  }
  const int64_t before = checked_->ops_checked();
  checked_->set_checking(true);
  stepper_.give(step, state, false);
  checked_->set_checking(false);
  log::info("step {}: {} ops computed on the CPU as well, all equal up to rounding", grouped(given() + 1),
            checked_->ops_checked() - before);
}

void Training::take_result() {
  const StepResult result = stepper_.take();
  for (const std::string& problem : {team_run_.team().failure(), communicator_.failure()}) {
    require(problem.empty(), "{}", problem);
  }
  count(given_.front(), result);
  given_.pop_front();
  show_progress();
  if (state_.step % config_.log.every_steps == 0) {
    write_log();
  }
}

void Training::take_all_results() {
  while (!given_.empty()) {
    take_result();
  }
  if (state_.skipped_in_a_row >= config_.nonfinite.max_skips) {
    roll_back();
  }
}

void Training::count(const GivenStep& given, const StepResult& result) {
  tick();
  const TrainStep& step = given.step;
  const UpdateState& update = result.update;
  ++state_.step;
  observer_->set_step(state_.step);
  state_.updates = update.updates;
  state_.cursor = step.after;
  state_.epochs_done = step.epochs_done;
  state_.pairs += step.pairs;
  state_.source_tokens += step.source_tokens;
  state_.target_tokens += step.target_tokens;

  const double waited = result.clock.communication_seconds();
  window_ = merged(window_, given.counts);
  window_.elapsed_seconds = elapsed();
  window_.communication_seconds += waited;
  window_.compute_seconds += seconds_since(counted_) - waited;
  counted_ = Clock::now();
  window_.idle_seconds += ended_ == 0 ? 0 : static_cast<double>(result.clock.begin - ended_) * 1e-9;
  ended_ = result.clock.end;
  pause_asked_ = pause_asked_ || (team_update_ ? result.pause > 0 : given.pause);
  if (update.finite == 0) {
    ++state_.skipped;
    ++state_.skipped_in_a_row;
    ++window_.skipped_steps;
    log::warning("step {}: the gradient is not finite; the step is skipped ({} in a row, {} in all)",
                 grouped(state_.step), state_.skipped_in_a_row, grouped(state_.skipped));
    event("skipped", "gradient not finite");
    return;
  }
  state_.skipped_in_a_row = 0;
  add_losses(window_, losses_, result.totals);
  window_.gradient_norm = update.norm;
  window_.clipped_gradient_norm = update.norm * static_cast<double>(update.clip_factor);
}

void Training::roll_back() {
  const CheckpointState failed = state_;
  require(failed.rollbacks < config_.nonfinite.max_rollbacks,
          "training diverged: {} steps in a row were not finite at step {}, after {} rollbacks; lower "
          "schedule.learning_rate or set optimizer.max_gradient_norm, then start over",
          failed.skipped_in_a_row, failed.step, failed.rollbacks);
  if (!load_newest(find_latest(run_.root()))) {
    begin_fresh();
  }
  ended_ = 0;
  state_.rollbacks = failed.rollbacks + 1;
  state_.skipped = failed.skipped;
  state_.skipped_in_a_row = 0;
  state_.elapsed_seconds = failed.elapsed_seconds;
  state_.learning_rate_factor = failed.learning_rate_factor * config_.nonfinite.lr_factor;
  log::warning("{} steps in a row were not finite: back to step {}, learning rate times {:g}", failed.skipped_in_a_row,
               grouped(state_.step), state_.learning_rate_factor);
  observer_->rewind(state_.step);
  event("rollback", fmt::format("from step {}", failed.step));
  window_ = {};
  losses_ = {};
  start_batches();
}

}  // namespace tandem
