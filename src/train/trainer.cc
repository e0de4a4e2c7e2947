#include "train/trainer.h"

#include <csignal>
#include <deque>

#include "backend/checked/checked_backend.h"
#include "backend/cuda_device.h"
#include "core/human.h"
#include "core/log.h"
#include "core/philox.h"
#include "core/signals.h"
#include "core/stopwatch.h"
#include "data/prefetch.h"
#include "observe/progress.h"
#include "train/learner.h"
#include "train/run_checkpoints.h"
#include "train/run_observer.h"
#include "train/run_state.h"
#include "train/step_meter.h"
#include "train/validator.h"

namespace tandem::train {

namespace {

constexpr uint32_t kCheckPurpose = 0xC4EC;  // purpose in Philox's counter: choosing the steps to check

// The backend, and its decorator that checks it against the CPU, if wanted.
struct Device {
  Device(const TrainConfig& config, double check_share)
      : backend(backend::make_backend(config.device, config.threads)) {
    if (check_share > 0) {
      require(backend->stream().handle != nullptr, "there is no GPU whose arithmetic could be checked");
      auto decorated = std::make_unique<backend::CheckedBackend>(std::move(backend), config.threads);
      checked = decorated.get();
      backend = std::move(decorated);
    }
  }

  std::unique_ptr<backend::Backend> backend;
  backend::CheckedBackend* checked = nullptr;
};

// A training run in progress, as seen by one of its ranks: learner, counters and the loop.
class Training {
 public:
  Training(const TrainConfig& config, data::Prepared data, GroupRun& run, Signals& signals, double check_share);

  void begin();  // with fresh weights or from the run's latest checkpoint
  TrainOutcome run();

 private:
  // ---- steps
  void give_step();  // gives the next batch to the learner
  void give_to_backend(const data::TrainStep& step, const StepInput& input);
  void take_results(size_t under_way);  // counts and reports steps until at most so many are under way
  void count(const GivenStep& given, const StepResult& result);
  void report_step();  // to the terminal and, at the end of a window, as a log line and a record
  void roll_back();    // returns to the last checkpoint, with a lower learning rate
  // Nothing loaded: begins. A checkpoint that is missing on a rank's disk is written again.
  void go_on_from(const std::optional<RunCheckpoints::Loaded>& loaded);
  void start_batches();

  // ---- pauses
  std::optional<ValidationResult> validate();  // counts and reports it; nothing if a signal asks to stop
  void save();
  void event(const std::string& name, const std::string& details);  // writes a record to the metrics

  int64_t given() const { return state_.step + static_cast<int64_t>(given_.size()); }  // steps given so far
  bool wants_pause() const;  // because of a clock or a signal, which other ranks do not see
  RunClock agreed_clock() const { return {state_.elapsed_seconds, validated_at_, saved_at_}; }
  int agreed_signal() { return static_cast<int>(run_.largest(signals_.stop_signal())); }
  void agree_on_time();
  void agree();  // exchanges what all ranks act on in a pause

  const TrainConfig config_;
  GroupRun& run_;
  data::Prepared data_;
  double check_share_;
  Device device_;
  backend::Backend& backend_;
  std::unique_ptr<dist::Communicator> own_communicator_;
  dist::Communicator& communicator_;  // adds up gradients
  Learner learner_;
  std::optional<RunObserver> observer_;
  RunCheckpoints checkpoints_;  // after the observer, which its thread uses
  Validator validator_;
  Signals& signals_;

  store::CheckpointState state_;
  std::optional<data::Prefetcher> batches_;
  std::deque<GivenStep> given_;
  double epochs_given_ = 0;  // after the last step given
  StepMeter meter_;
  Stopwatch watch_;  // time since state_.elapsed_seconds was updated
  double validated_at_ = 0, saved_at_ = 0;
  int64_t saved_step_ = -1;

  // What all ranks agreed on at the last pause.
  int stop_signal_ = 0;
  bool save_asked_ = false;
  bool pause_asked_ = false;  // a rank asked for a pause, in the last step that was counted
};

Training::Training(const TrainConfig& config, data::Prepared data, GroupRun& run, Signals& signals, double check_share)
    : config_(config),
      run_(run),
      data_(std::move(data)),
      check_share_(check_share),
      device_(config, check_share),
      backend_(*device_.backend),
      own_communicator_(make_gradient_communicator(run.group(), backend_, config.dist)),
      communicator_(own_communicator_ ? *own_communicator_ : run.group().communicator()),
      learner_(backend_, config_, data_.train, {run.group().communicator(), communicator_},
               {.wanted = saved_micro_batch(run)}),
      checkpoints_(run, data_, config_, learner_),
      validator_(backend_, learner_.model(), data_, config_, run),
      signals_(signals),
      meter_(communicator_) {
  log::info("{}; {} parameters, {}", backend_.description(), grouped(learner_.model().parameters().count()),
            learner_.weights().copy().empty() ? "f32" : "bf16 with f32 masters");
  if (!learner_.plan().description.empty()) {
    log::info("{}", learner_.plan().description);
  }
  log::info("{} training pairs, {} + {} pieces; {} pairs longer than {} tokens are left out",
            grouped(data_.train.size()), grouped(data_.train.tokens(Side::source)),
            grouped(data_.train.tokens(Side::target)), grouped(learner_.batcher().too_long()),
            config_.model.max_length);
  log::info("learning rate: {}", optim::explain(config_.schedule));
}

void Training::begin() {
  const std::string algorithms = use_algorithms(backend_, run_, config_);
  if (run_.keeps_checkpoints() && !run_.starts_over()) {
    store::remove_stale_checkpoints(run_.directory().root());
  }
  run_.barrier();
  const auto resumed = run_.starts_over() ? std::nullopt : checkpoints_.resume();
  go_on_from(resumed);
  if (run_.starts_over()) {  // only now, when everything was read successfully
    run_.clear();
  }
  log::open_file(run_.first() ? run_.directory().log() : run_.directory().rank_log(run_.rank()));
  write_settings(run_, data_, algorithms);
  const DeviceStream stream = backend_.stream();
  observer_.emplace(run_, config_, stream.handle == nullptr ? "" : backend::gpu_bus_id(stream.device),
                    resumed ? std::optional(state_.step) : std::nullopt);
  observer_->write(setup_record(run_, learner_, backend_, config_, state_));
  start_batches();
  meter_.begin();
  watch_.lap();
  agree_on_time();
  saved_at_ = validated_at_ = state_.elapsed_seconds;
}

void Training::go_on_from(const std::optional<RunCheckpoints::Loaded>& loaded) {
  state_ = loaded ? loaded->state : checkpoints_.begin_fresh();
  saved_step_ = loaded && loaded->everywhere ? state_.step : -1;
  if (loaded && !loaded->everywhere) {
    save();
  }
}

TrainOutcome Training::run() {
  agree();
  std::optional<std::string> end = end_reached(config_.stop, state_);
  while (!end && stop_signal_ == 0) {
    give_step();
    take_results(learner_.usual_under_way());
    if (!pause_asked_ && !save_asked_ && !pause_due(config_, state_, given(), epochs_given_)) {
      continue;
    }
    take_results(0);
    if (state_.skipped_in_a_row >= config_.nonfinite.max_skips) {
      roll_back();
    }
    agree();
    end = end_reached(config_.stop, state_);

    std::optional<ValidationResult> validation;
    if (stop_signal_ == 0 &&
        (validation_due(config_.validation, state_, agreed_clock()) || (end && state_.metrics_step != state_.step))) {
      validation = validate();
    }
    if (validation || save_asked_ || checkpoint_due(config_.checkpoint, state_, saved_step_, agreed_clock())) {
      save();
    }
    if (validation) {
      observer_->write_report();
      end = end_reached(config_.stop, state_);
    }
    meter_.resume();
  }
  if (saved_step_ != state_.step) {
    save();
  }
  checkpoints_.finish();
  const std::string reason = end ? *end : fmt::format("stopped by signal {}", stop_signal_);
  event("end", reason);
  observer_->finish(end.has_value());
  log::status("");
  return {reason, state_.step, end ? 0 : stop_signal_};
}

// ---- steps

void Training::give_step() {
  const Stopwatch waiting;
  GivenStep given;
  given.step = batches_->next();
  meter_.wait_for_data(waiting.seconds());

  const double rate = optim::learning_rate(config_.schedule, this->given()) * state_.learning_rate_factor;
  given.counts = counts_of(given.step, this->given() + 1, rate, learner_);
  given.pause = wants_pause();
  StepInput input = learner_.input_of(given.step, this->given(), rate);
  input.pause = given.pause ? 1 : 0;
  give_to_backend(given.step, input);
  epochs_given_ = given.step.epochs_done;
  given.step.micro_batches.clear();  // its sentences are no longer needed
  given_.push_back(std::move(given));
}

void Training::give_to_backend(const data::TrainStep& step, const StepInput& input) {
  const float drawn = uniform(philox(input.state.seed, input.state.step, kCheckPurpose, 0, 0)[0]);
  if (device_.checked == nullptr || !(static_cast<double>(drawn) < check_share_)) {
    learner_.give(step, input);
    return;
  }
  const int64_t before = device_.checked->ops_checked();
  device_.checked->set_checking(true);
  learner_.give(step, input, false);
  device_.checked->set_checking(false);
  log::info("step {}: {} ops computed on the CPU as well, all equal up to rounding", grouped(given() + 1),
            device_.checked->ops_checked() - before);
}

void Training::take_results(size_t under_way) {
  while (given_.size() > under_way) {
    const StepResult result = learner_.take();
    for (const std::string& problem : {run_.group().failure(), communicator_.failure()}) {
      require(problem.empty(), "{}", problem);
    }
    count(given_.front(), result);
    given_.pop_front();
    report_step();
  }
  if (const std::string problem = checkpoints_.take_problem(); !problem.empty()) {
    log::warning("{}", problem);
    event("checkpoint failed", problem);
  }
}

void Training::count(const GivenStep& given, const StepResult& result) {
  state_.elapsed_seconds += watch_.lap();
  count_step(state_, given.step, result.update);
  meter_.count(given, result, state_.elapsed_seconds);
  observer_->set_step(state_.step);
  pause_asked_ = pause_asked_ || given.pause || result.sums.pause > 0;
  if (result.update.finite == 0) {
    log::warning("step {}: the gradient is not finite; the step is skipped ({} in a row, {} in all)",
                 grouped(state_.step), state_.skipped_in_a_row, grouped(state_.skipped));
    event("skipped", "gradient not finite");
  }
}

void Training::roll_back() {
  const store::CheckpointState failed = state_;
  require(failed.rollbacks < config_.nonfinite.max_rollbacks,
          "training diverged: {} steps in a row were not finite at step {}, after {} rollbacks; lower "
          "schedule.learning_rate or set optimizer.max_gradient_norm, then start over",
          failed.skipped_in_a_row, failed.step, failed.rollbacks);
  go_on_from(checkpoints_.load_newest());
  state_ = rolled_back(failed, state_, config_.nonfinite.lr_factor);
  log::warning("{} steps in a row were not finite: back to step {}, learning rate times {:g}", failed.skipped_in_a_row,
               grouped(state_.step), state_.learning_rate_factor);
  observer_->rewind(state_.step);
  event("rollback", fmt::format("from step {}", failed.step));
  meter_.forget();
  start_batches();
}

void Training::start_batches() {
  batches_.reset();  // its thread uses the batcher
  learner_.batcher().seek(state_.cursor);
  epochs_given_ = state_.epochs_done;
  batches_.emplace([this] { return learner_.batcher().next(); });
}

// ---- pauses

std::optional<ValidationResult> Training::validate() {
  const Stopwatch watch;
  log::status(fmt::format("validating at step {}", state_.step));
  std::optional<ValidationResult> result;
  learner_.update().complete(learner_.weights().average());
  learner_.weights().with_average([&] {
    Arena arena([this](size_t bytes) { return backend_.allocate(bytes); });
    result = validator_.run(learner_.weights().weights(), arena, [this] { return signals_.stop_signal() != 0; });
  });
  agree_on_time();
  meter_.add_validation(watch.seconds());
  if (!result) {
    log::info("the validation at step {} is skipped: a signal asks to stop", grouped(state_.step));
    stop_signal_ = agreed_signal();
    return std::nullopt;
  }
  validated_at_ = state_.elapsed_seconds;
  count_validation(state_, result->metrics(), config_.stop.metric);
  observer_->write_validation(*result, state_, watch.seconds());
  return result;
}

void Training::save() {
  const Stopwatch watch;
  checkpoints_.save(state_, observer_ ? [this] { observer_->sync(); } : std::function<void()>([] {}));
  agree_on_time();
  save_asked_ = false;
  saved_step_ = state_.step;
  saved_at_ = state_.elapsed_seconds;
  meter_.add_checkpoint(watch.seconds());
}

bool Training::wants_pause() const {
  RunClock own = agreed_clock();
  own.now += watch_.seconds();
  return time_for_pause(config_, own) || signals_.stop_signal() != 0 || signals_.save_requested();
}

// Each rank has its own clock and signals: the first rank's time and any rank's signal count for all.
void Training::agree_on_time() { state_.elapsed_seconds = run_.broadcast(state_.elapsed_seconds + watch_.lap()); }

void Training::agree() {
  agree_on_time();
  stop_signal_ = agreed_signal();
  save_asked_ = run_.largest(signals_.take_save_request() || save_asked_ ? 1 : 0) > 0;
  pause_asked_ = false;
}

// ---- output to the user

void Training::event(const std::string& name, const std::string& details) {
  observer_->write(observe::Record{"event", state_.step}.add("event", name).add("details", details));
}

void Training::report_step() {
  const double left = seconds_left(config_.stop, state_);
  if (log::on_terminal() && meter_.has_losses()) {
    log::status(observe::status_line(meter_.window(), config_.stop.max_steps, left, log::columns()));
  }
  if (state_.step % config_.log.every_steps != 0) {
    return;
  }
  const bool complete = meter_.has_losses();
  const observe::TrainPoint window = meter_.take_window();
  if (complete) {
    observer_->write(observe::train_record(window, run_.first()));
    log::info("{}", observe::console_line(window, config_.stop.max_steps, left));
  }
}

}  // namespace

TrainOutcome train_model(TrainConfig config, bool start_over, double check_share) {
  std::signal(SIGUSR1, SIG_IGN);  // ignored until there is something to save
  data::Prepared data = data::Prepared::open(config.data);
  complete_config(config, data);
  std::optional<Signals> signals;  // outlives the run: a further signal must not cut its end short
  GroupRun run(config, data, start_over);
  signals.emplace(config.stop.grace_seconds);
  log::set_quiet(!run.first());
  TrainOutcome outcome;
  bool begun = false;
  try {
    Training training(config, std::move(data), run, *signals, check_share);
    training.begin();
    begun = true;
    outcome = training.run();
  } catch (const std::exception& error) {
    log::close_file(fmt::format("error: {}", error.what()));
    if (run.size() > 1) {
      run.group().stop(error.what());  // the other ranks receive the reason
    }
    if (!begun) {
      run.directory().abandon();
    }
    throw;
  }
  run.leave();
  log::close_file(outcome.reason);
  return outcome;
}

}  // namespace tandem::train
