#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>

#include "backend/checked/checked_backend.h"
#include "core/file.h"
#include "core/log.h"
#include "core/philox.h"
#include "core/signals.h"
#include "data/prefetch.h"
#include "data/prepared.h"
#include "observe/run_log.h"
#include "optim/adam.h"
#include "train/checkpoint.h"
#include "train/host_copy.h"
#include "train/limits.h"
#include "train/memory_plan.h"
#include "train/model_state.h"
#include "train/reporting.h"
#include "train/run_directory.h"
#include "train/setup.h"
#include "train/stepper.h"
#include "train/validator.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct StopAsked {};  // thrown and caught inside a validation

// A step that was given to the backend and whose result is not there yet; its sentences are no longer needed.
struct GivenStep {
  TrainStep step;
  double learning_rate = 0;
};

constexpr size_t kStepsUnderWay = 3;  // enough that the device never waits for the host

constexpr uint32_t kCheckPurpose = 0xC4EC;  // philox's counter of the choice of steps to check

std::unique_ptr<Backend> backend_for(const TrainConfig& config, double check_share) {
  auto backend = make_backend(config.device, config.threads);
  if (check_share == 0) {
    return backend;
  }
  require(backend->fixed_shape(), "there is no GPU whose arithmetic could be checked");
  return std::make_unique<CheckedBackend>(std::move(backend), config.threads);
}

class Trainer {
 public:
  Trainer(const TrainConfig& config, Prepared data, RunDirectory& run, double check_share);

  void begin();  // fresh weights, or those of config.init; or the latest checkpoint
  TrainOutcome run();

 private:
  void use_algorithms();
  void begin_fresh();
  void resume(const std::filesystem::path& checkpoint);
  void load(const std::filesystem::path& checkpoint);
  void start_batches();

  void give_step();
  void give_to_backend(const TrainStep& step, const StepState& state);
  void take_result();
  void take_all_results();
  void count(const GivenStep& given, const StepResult& result);
  void roll_back();

  int64_t given() const { return state_.step + static_cast<int64_t>(given_.size()); }  // steps given so far
  bool pause_due() const;  // something must be done between the steps that were given and the next
  std::optional<std::string> end_reached() const { return tandem::end_reached(config_.stop, state_); }
  double share_done() const { return tandem::share_done(config_.stop, state_); }
  double elapsed() const { return state_.elapsed_seconds; }
  void tick();  // brings state_.elapsed_seconds up to date

  void event(const std::string& name, const std::string& details);
  void show_progress();
  void write_log();
  bool validation_due() const;
  void validate();
  bool checkpoint_due() const;
  void save();

  // All that a checkpoint holds, in host memory while it lives.
  struct HostTensors {
    HostTensors(const Trainer& t, HostCopy::Purpose purpose)
        : weights(*t.backend_, t.weights_.masters(), purpose),
          m(*t.backend_, t.adam_.m(), purpose),
          v(*t.backend_, t.adam_.v(), purpose),
          average(*t.backend_, t.weights_.average(), purpose) {}
    CheckpointTensors views() const { return {weights.view(), m.view(), v.view(), average.view()}; }

    HostCopy weights, m, v, average;
  };

  TrainConfig config_;
  RunDirectory& run_;
  Prepared data_;
  double check_share_;
  std::unique_ptr<Backend> backend_;
  Transformer model_;
  ModelState weights_;
  Adam adam_;
  MemoryPlan plan_;
  Batcher batcher_;
  std::optional<Prefetcher> batches_;
  Stepper stepper_;
  std::deque<GivenStep> given_;
  Validator validator_;
  std::optional<RunLog> log_;
  Signals signals_;

  CheckpointState state_;
  Window window_;
  Clock::time_point ticked_ = Clock::now();
  Clock::time_point counted_ = Clock::now();  // when the last result was there
  double validated_at_ = 0;                   // elapsed seconds at the last validation
  double saved_at_ = 0;                       // and at the last checkpoint
  int64_t saved_step_ = -1;
};

Trainer::Trainer(const TrainConfig& config, Prepared data, RunDirectory& run, double check_share)
    : config_(config),
      run_(run),
      data_(std::move(data)),
      check_share_(check_share),
      backend_(backend_for(config, check_share)),
      model_(*backend_, config_.model),
      weights_(*backend_, model_.parameters(), compute_type(config_.precision, *backend_),
               config_.optimizer.ema_decay > 0),
      adam_(*backend_, model_.parameters().flat_size(),
            {config_.optimizer.adam, config_.optimizer.max_gradient_norm, config_.optimizer.ema_decay}),
      plan_(plan_memory(*backend_, weights_.weights().compute.dtype, data_.train, config_)),
      batcher_(data_.train, plan_.batch),
      stepper_(*backend_, model_, weights_, adam_, config_.label_smoothing, plan_.layouts),
      validator_(*backend_, model_, data_, config_) {
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

// ---- before the first step

// The table that the run began with, so that a resumed run computes the same bits; else the config's.
void Trainer::use_algorithms() {
  constexpr size_t kMostBytes = 1 << 20;
  if (std::filesystem::exists(run_.algorithms())) {
    try {
      backend_->use_algorithms(read_file(run_.algorithms(), kMostBytes), run_.algorithms().string());
    } catch (const Error& error) {
      log::warning("{}; the run goes on without it, and not with the same bits", error.what());
    }
  } else if (!config_.algorithms.empty()) {
    const std::string table = read_file(config_.algorithms, kMostBytes);
    backend_->use_algorithms(table, config_.algorithms);
    write_file(run_.algorithms(), table);
  }
}

void Trainer::begin() {
  use_algorithms();
  remove_stale_checkpoints(run_.root());
  const auto latest = find_latest(run_.root());
  if (latest) {
    resume(*latest);
  } else {
    begin_fresh();
  }
  write_file(run_.config(), to_toml(config_));
  log_.emplace(run_.metrics(), run_.events(), 0, latest ? std::optional(state_.step) : std::nullopt);
  log_->hyperparameters(hyperparameters(config_));
  log_->text(state_.step, "config", "```\n" + to_toml(config_) + "```");
  start_batches();
  ticked_ = counted_ = Clock::now();
  saved_at_ = validated_at_ = elapsed();
}

void Trainer::begin_fresh() {
  state_ = {};
  state_.seed = config_.seed;
  state_.data_fingerprint = data_.fingerprint;
  {
    const HostCopy masters(*backend_, weights_.masters(), HostCopy::write);
    initialize(masters.view(), model_.parameters(), config_.seed);
    if (!config_.init.empty()) {
      const auto from = resolve_model(config_.init);
      load_inference_weights(from, model_.parameters(), masters.view());
      log::info("the weights begin as those of {}", from.string());
    }
  }
  weights_.refresh_copy();
  if (!weights_.average().empty()) {
    backend_->copy(weights_.average(), weights_.masters());
  }
  backend_->fill_zero(adam_.m());
  backend_->fill_zero(adam_.v());
  stepper_.set_updates(0);
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const Checkpoint saved = load_checkpoint(checkpoint);
  check_resume(saved, config_, data_.fingerprint, run_.root());
  load(checkpoint);
  saved_step_ = state_.step;
  log::info("going on from step {} ({}); --start-over begins anew", grouped(state_.step), checkpoint.string());
}

void Trainer::load(const std::filesystem::path& checkpoint) {
  state_ = load_checkpoint(checkpoint, false).state;
  const bool with_average = load_tensors(checkpoint, model_.parameters(), HostTensors(*this, HostCopy::write).views());
  if (!weights_.average().empty() && !with_average) {
    backend_->copy(weights_.average(), weights_.masters());
  }
  weights_.refresh_copy();
  stepper_.set_updates(state_.updates);
}

void Trainer::start_batches() {
  batches_.reset();  // its thread uses the batcher
  batcher_.seek(state_.cursor);
  batches_.emplace([this] { return batcher_.next(); });
}

// ---- the loop

TrainOutcome Trainer::run() {
  std::optional<std::string> end = end_reached();
  while (!end && signals_.stop_signal() == 0) {
    give_step();
    while (given_.size() > (backend_->fixed_shape() ? kStepsUnderWay : 0)) {
      take_result();
    }
    if (pause_due()) {
      take_all_results();
    } else {
      continue;
    }
    end = end_reached();
    if (validation_due() || (end && state_.metrics_step != state_.step)) {
      validate();
      end = end_reached();
    }
    if (checkpoint_due() || signals_.take_save_request()) {
      save();
    }
    counted_ = Clock::now();
  }
  take_all_results();
  tick();
  if (saved_step_ != state_.step) {
    save();
  }
  const int signal = signals_.stop_signal();
  const std::string reason = end ? *end : fmt::format("stopped by signal {}", signal);
  event("end", reason);
  log_->finish(end.has_value());
  log::status("");
  return {reason, state_.step, end ? 0 : signal, state_.metrics};
}

void Trainer::give_step() {
  const auto begin = Clock::now();
  GivenStep given{batches_->next()};
  window_.data_seconds += seconds_since(begin);

  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(this->given());
  state.loss_scale = 1.0F / static_cast<float>(given.step.target_tokens);
  given.learning_rate = learning_rate(config_.schedule, this->given()) * state_.learning_rate_factor;
  state.learning_rate = static_cast<float>(given.learning_rate);
  give_to_backend(given.step, state);
  given.step.rounds.clear();
  given_.push_back(std::move(given));
}

void Trainer::give_to_backend(const TrainStep& step, const StepState& state) {
  const float drawn = uniform(philox(state.seed, state.step, kCheckPurpose, 0, 0)[0]);
  if (!(static_cast<double>(drawn) < check_share_)) {
    stepper_.give(step, state);
    return;
  }
  auto& checked = static_cast<CheckedBackend&>(*backend_);
  const int64_t before = checked.ops_checked();
  checked.set_checking(true);
  stepper_.give(step, state, false);
  checked.set_checking(false);
  log::info("step {}: {} ops computed on the CPU as well, all equal up to rounding", grouped(given() + 1),
            checked.ops_checked() - before);
}

void Trainer::take_result() {
  const StepResult result = stepper_.take();
  count(given_.front(), result);
  given_.pop_front();
  show_progress();
  if (state_.step % config_.log.every_steps == 0) {
    write_log();
  }
}

void Trainer::take_all_results() {
  while (!given_.empty()) {
    take_result();
  }
  if (state_.skipped_in_a_row >= config_.nonfinite.max_skips) {
    roll_back();
  }
}

void Trainer::count(const GivenStep& given, const StepResult& result) {
  tick();
  const TrainStep& step = given.step;
  const UpdateState& update = result.update;
  ++state_.step;
  state_.updates = update.updates;
  state_.cursor = step.after;
  state_.epochs_done = step.epochs_done;
  state_.pairs += step.pairs;
  state_.source_tokens += step.source_tokens;
  state_.target_tokens += step.target_tokens;

  window_.step_seconds += seconds_since(counted_);
  counted_ = Clock::now();
  ++window_.steps;
  window_.pairs += step.pairs;
  window_.source_tokens += step.source_tokens;
  window_.target_tokens += step.target_tokens;
  window_.learning_rate = given.learning_rate;
  if (update.finite == 0) {
    ++state_.skipped;
    ++state_.skipped_in_a_row;
    ++window_.skipped;
    log::warning("step {}: the gradient is not finite; the step is skipped ({} in a row, {} in all)",
                 grouped(state_.step), state_.skipped_in_a_row, grouped(state_.skipped));
    event("skipped", "gradient not finite");
    return;
  }
  state_.skipped_in_a_row = 0;
  window_.add(result.totals);
  window_.gradient_norm = update.norm;
  window_.clipped_gradient_norm = update.norm * static_cast<double>(update.clip_factor);
}

void Trainer::roll_back() {
  const CheckpointState failed = state_;
  require(failed.rollbacks < config_.nonfinite.max_rollbacks,
          "training diverged: {} steps in a row were not finite at step {}, after {} rollbacks; lower "
          "schedule.learning_rate or set optimizer.max_gradient_norm, then start over",
          failed.skipped_in_a_row, failed.step, failed.rollbacks);
  const auto latest = find_latest(run_.root());
  if (latest) {
    load(*latest);
  } else {
    begin_fresh();
  }
  state_.rollbacks = failed.rollbacks + 1;
  state_.skipped = failed.skipped;
  state_.skipped_in_a_row = 0;
  state_.elapsed_seconds = failed.elapsed_seconds;
  state_.learning_rate_factor = failed.learning_rate_factor * config_.nonfinite.lr_factor;
  log::warning("{} steps in a row were not finite: back to step {}, learning rate times {:g}", failed.skipped_in_a_row,
               grouped(state_.step), state_.learning_rate_factor);
  log_->rewind(state_.step);
  event("rollback", fmt::format("from step {}", failed.step));
  window_ = {};
  start_batches();
}

// ---- limits

bool Trainer::pause_due() const {
  const auto every = [this](int64_t steps) { return steps > 0 && given() % steps == 0; };
  const auto minutes = [this](double period, double since) {
    return period > 0 && elapsed() + seconds_since(ticked_) - since >= period * 60;
  };
  const StopConfig& stop = config_.stop;
  return given_.empty() || every(config_.validation.every_steps) || every(config_.checkpoint.every_steps) ||
         (stop.max_steps > 0 && given() >= stop.max_steps) ||
         (stop.max_epochs > 0 && given_.back().step.epochs_done >= stop.max_epochs) || minutes(stop.max_minutes, 0) ||
         minutes(config_.validation.every_minutes, validated_at_) ||
         minutes(config_.checkpoint.every_minutes, saved_at_) || signals_.stop_signal() != 0 ||
         signals_.save_requested() || state_.skipped_in_a_row >= config_.nonfinite.max_skips;
}

void Trainer::tick() {
  const auto now = Clock::now();
  state_.elapsed_seconds += std::chrono::duration<double>(now - ticked_).count();
  ticked_ = now;
}

// ---- log, validation, checkpoints

void Trainer::event(const std::string& name, const std::string& details) {
  log_->write(Record{"event", state_.step}.add("event", name).add("details", details));
}

void Trainer::show_progress() {
  if (log::on_terminal() && window_.totals.tokens > 0) {
    log::status(status_line(progress_of(window_, state_, config_.stop.max_steps, share_done()), log::columns()));
  }
}

void Trainer::write_log() {
  if (window_.totals.tokens > 0) {
    log_->write(train_record(window_, state_));
    log::info("{}", console_line(progress_of(window_, state_, config_.stop.max_steps, share_done())));
  }
  window_ = {};
}

bool Trainer::validation_due() const {
  const ValidationConfig& when = config_.validation;
  return (when.every_steps > 0 && state_.step % when.every_steps == 0 && state_.metrics_step != state_.step) ||
         (when.every_minutes > 0 && elapsed() - validated_at_ >= when.every_minutes * 60);
}

void Trainer::validate() {
  const auto begin = Clock::now();
  log::status(fmt::format("validating at step {}", state_.step));
  ValidationResult result;
  try {
    const ModelState::UseAverage average(weights_);
    Arena arena([this](size_t bytes) { return backend_->allocate(bytes); });
    result = validator_.run(weights_.weights(), arena, [this] {
      if (signals_.stop_signal() != 0) {
        throw StopAsked();
      }
    });
  } catch (const StopAsked&) {
    log::info("the validation at step {} is left out: a signal asks to stop", grouped(state_.step));
    return;
  }
  tick();
  window_.validation_seconds += seconds_since(begin);
  validated_at_ = elapsed();
  state_.metrics = result.metrics();
  state_.metrics_step = state_.step;
  ++state_.validations;

  const auto score = state_.metrics.find(name_of(config_.stop.metric));
  if (score != state_.metrics.end()) {
    const bool better =
        !state_.best_score || (higher_is_better(config_.stop.metric) ? score->second > *state_.best_score
                                                                     : score->second < *state_.best_score);
    state_.bad_validations = better ? 0 : state_.bad_validations + 1;
    if (better) {
      state_.best_score = score->second;
      state_.best_step = state_.step;
    }
  }
  report_validation(result, state_, seconds_since(begin), *log_);
  save();
}

bool Trainer::checkpoint_due() const {
  const CheckpointConfig& when = config_.checkpoint;
  return saved_step_ != state_.step && ((when.every_steps > 0 && state_.step % when.every_steps == 0) ||
                                        (when.every_minutes > 0 && elapsed() - saved_at_ >= when.every_minutes * 60));
}

void Trainer::save() {
  const auto begin = Clock::now();
  tick();
  log_->sync();
  const Checkpoint checkpoint{state_, to_toml(config_), data_.source.bytes(),
                              data_.joint ? "" : data_.target.front().bytes()};
  const auto directory =
      save_checkpoint(run_.root(), checkpoint, model_.parameters(), HostTensors(*this, HostCopy::read).views());
  if (state_.best_score && state_.best_step == state_.step) {
    set_best(run_.root(), directory);
  }
  remove_old_checkpoints(run_.root(), config_.checkpoint, config_.stop.metric);
  tick();
  saved_step_ = state_.step;
  saved_at_ = elapsed();
  window_.checkpoint_seconds += seconds_since(begin);
}

}  // namespace

TrainOutcome train_model(TrainConfig config, bool start_over, double check_share) {
  RunDirectory run(config.run);
  if (start_over) {
    run.clear();
  }
  log::open_file(run.log());
  Prepared data = Prepared::open(config.data);
  complete_config(config, data);
  Trainer trainer(config, std::move(data), run, check_share);
  trainer.begin();
  TrainOutcome outcome = trainer.run();
  log::close_file();
  return outcome;
}

}  // namespace tandem
