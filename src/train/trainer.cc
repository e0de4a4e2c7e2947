#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>

#include "backend/checked/checked_backend.h"
#include "backend/cuda_device.h"
#include "core/file.h"
#include "core/log.h"
#include "core/philox.h"
#include "core/signals.h"
#include "data/prefetch.h"
#include "data/prepared.h"
#include "optim/adam.h"
#include "train/checkpoint.h"
#include "train/checkpoint_state.h"
#include "train/gradient_communicator.h"
#include "train/host_tensors.h"
#include "train/limits.h"
#include "train/memory_plan.h"
#include "train/model_state.h"
#include "train/product_rate.h"
#include "train/reporting.h"
#include "train/run_directory.h"
#include "train/run_observer.h"
#include "train/setup.h"
#include "train/step_flops.h"
#include "train/stepper.h"
#include "train/team_run.h"
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
  double flops = 0;      // of this rank's part
  bool pause = false;    // this rank wants a pause after it
  Traffic traffic = {};  // of this rank, by plan
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
  Trainer(const TrainConfig& config, Prepared data, TeamRun& team_run, double check_share);

  void begin();  // fresh weights, or those of config.init; or the latest checkpoint
  TrainOutcome run();

 private:
  std::optional<TeamUpdate> make_team_update();
  void use_algorithms();
  void begin_fresh();
  bool resume();
  void load(const std::filesystem::path& checkpoint);
  void share_loaded(int from);
  void after_load(bool with_average);
  void start_batches();
  void tell_setup();

  void give_step();
  void give_to_backend(const TrainStep& step, const StepState& state);
  void take_result();
  void take_all_results();
  void count(const GivenStep& given, const StepResult& result);
  void roll_back();

  int64_t given() const { return state_.step + static_cast<int64_t>(given_.size()); }  // steps given so far
  bool pause_due() const;    // something must be done between the steps that were given and the next
  bool wants_pause() const;  // this rank does, for a reason that the others do not know: a clock or a signal
  void agree();              // what all ranks go by in the pause
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
  void write_checkpoint(const CheckpointTensors& tensors);
  TeamUpdate* team_update() { return team_update_ ? &*team_update_ : nullptr; }
  HostTensors host_tensors(HostCopy::Purpose purpose) {
    return {*backend_, weights_, adam_, team_update(), team_run_.team().communicator(), purpose};
  }

  TrainConfig config_;
  TeamRun& team_run_;
  RunDirectory& run_;
  Prepared data_;
  double check_share_;
  std::unique_ptr<Backend> backend_;
  Transformer model_;
  ModelState weights_;
  std::unique_ptr<Communicator> own_communicator_;
  Communicator& communicator_;  // of gradients
  std::optional<TeamUpdate> team_update_;
  Adam adam_;
  MemoryPlan plan_;
  Batcher batcher_;
  std::optional<Prefetcher> batches_;
  Stepper stepper_;
  std::deque<GivenStep> given_;
  Validator validator_;
  std::optional<RunObserver> observer_;
  Signals signals_;

  // What all ranks agreed on at the last pause.
  int stop_signal_ = 0;
  bool save_asked_ = false;
  bool pause_asked_ = false;  // by a rank, with the last step that was counted

  CheckpointState state_;
  Window window_;
  Clock::time_point ticked_ = Clock::now();
  Clock::time_point counted_ = Clock::now();  // when the last result was there
  uint64_t ended_ = 0;                        // the last step, by the device's clock; 0 = there was a pause
  Traffic traffic_;                           // up to the last window
  double validated_at_ = 0;                   // elapsed seconds at the last validation
  double saved_at_ = 0;                       // and at the last checkpoint
  int64_t saved_step_ = -1;
  double last_epochs_done_ = 0;  // after the last step that was given
};

Trainer::Trainer(const TrainConfig& config, Prepared data, TeamRun& team_run, double check_share)
    : config_(config),
      team_run_(team_run),
      run_(team_run.directory()),
      data_(std::move(data)),
      check_share_(check_share),
      backend_(backend_for(config, check_share)),
      model_(*backend_, config_.model),
      weights_(*backend_, model_.parameters(), compute_type(config_.precision, *backend_),
               config_.optimizer.ema_decay > 0, TeamUpdate::unit(team_run.size())),
      own_communicator_(make_gradient_communicator(team_run.team(), *backend_, config_.dist)),
      communicator_(own_communicator_ ? *own_communicator_ : team_run.team().communicator()),
      team_update_(make_team_update()),
      adam_(*backend_, team_update_ ? team_update_->moments() : model_.parameters().flat_size(),
            {config_.optimizer.adam, config_.optimizer.max_gradient_norm, config_.optimizer.ema_decay}),
      plan_(plan_memory(*backend_, weights_.weights().compute.dtype, data_.train, config_, team_run.size())),
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

std::optional<TeamUpdate> Trainer::make_team_update() {
  if (team_run_.size() == 1) {
    return std::nullopt;
  }
  return std::optional<TeamUpdate>(std::in_place, *backend_, model_, weights_, communicator_,
                                   TeamUpdateOptions{config_.dist.wire, config_.dist.shard_optimizer,
                                                     static_cast<int64_t>(config_.dist.bucket_mb * (1 << 20))});
}

void Trainer::begin() {
  use_algorithms();
  if (team_run_.keeps_checkpoints()) {
    remove_stale_checkpoints(run_.root());
  }
  team_run_.barrier();
  const bool resumed = resume();
  if (!resumed) {
    begin_fresh();
  }
  if (team_run_.keeps_checkpoints()) {
    write_file(run_.config(), to_toml(config_));
  }
  const DeviceStream stream = backend_->stream();
  observer_.emplace(team_run_, config_, stream.handle == nullptr ? "" : gpu_bus_id(stream.device),
                    resumed ? std::optional(state_.step) : std::nullopt);
  tell_setup();
  start_batches();
  traffic_ = communicator_.traffic();
  ticked_ = counted_ = Clock::now();
  saved_at_ = validated_at_ = elapsed();
}

void Trainer::tell_setup() {
  const DType compute = weights_.weights().compute.dtype;
  Record record{"setup", state_.step};
  record.add("schema", 1)
      .add("rank", team_run_.rank())
      .add("ranks", team_run_.size())
      .add("node", team_run_.team().node())
      .add("nodes", team_run_.team().nodes())
      .add("host", team_run_.team().world().host)
      .add("device", config_.device)
      .add("backend", backend_->description())
      .add("parameters", static_cast<double>(model_.parameters().count()))
      .add("precision", std::string(name_of(compute)))
      .add("wire", std::string(name_of(config_.dist.wire)))
      .add("sharded", config_.dist.shard_optimizer ? 1 : 0)
      .add("interface", team_run_.interface())
      .add("peak_flops", measure_product_rate(*backend_, compute))
      .add("version", std::string(TANDEM_VERSION));
  if (team_update_) {  // of a usual step: each side's rows vary a little from step to step
    Batcher next(data_.train, plan_.batch, team_run_.rank(), team_run_.size());
    next.seek(state_.cursor);
    const Traffic planned = stepper_.planned_traffic(next.next());
    record.add("planned_sent_bytes", static_cast<double>(planned.sent))
        .add("planned_received_bytes", static_cast<double>(planned.received));
  }
  observer_->write(record);
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

// From the newest checkpoint that any rank finds on its disk; false where there is none.
bool Trainer::resume() {
  const auto latest = find_latest(run_.root());
  std::optional<Checkpoint> saved;
  if (latest) {
    saved = load_checkpoint(*latest);
    check_resume(*saved, config_, data_.fingerprint, run_.root());
  }
  const double own = saved ? static_cast<double>(saved->state.step) : -1;
  const double newest = team_run_.largest(own);
  if (newest < 0) {
    return false;
  }
  const bool has_it = own == newest;
  if (has_it) {
    load(*latest);
  }
  const bool all_have_it = team_run_.largest(has_it ? 0 : 1) == 0;
  if (!all_have_it) {
    const auto size = static_cast<double>(team_run_.size());
    share_loaded(static_cast<int>(size - 1 - team_run_.largest(has_it ? size - 1 - team_run_.rank() : -1)));
  }
  saved_step_ = state_.step;
  log::info("going on from step {} ({}); --start-over begins anew", grouped(state_.step),
            latest ? latest->string() : "another host's checkpoint");
  if (!all_have_it) {
    save();  // where it was missing, it is there again
  }
  return true;
}

void Trainer::load(const std::filesystem::path& checkpoint) {
  state_ = load_checkpoint(checkpoint, false).state;
  bool with_average = false;
  {
    const HostTensors tensors = host_tensors(HostCopy::write);
    with_average = load_tensors(checkpoint, model_.parameters(), tensors.views());
  }
  after_load(with_average);
}

// The ranks that have no checkpoint get what rank `from` loaded.
void Trainer::share_loaded(int from) {
  state_ = parse_state(team_run_.broadcast(to_json(state_), from), "another rank's state");
  {
    const HostTensors loaded = host_tensors(HostCopy::read);
    const CheckpointTensors tensors = loaded.views();
    for (const View& view : {tensors.weights, tensors.m, tensors.v, tensors.ema}) {
      if (!view.empty()) {
        team_run_.team().communicator().broadcast(view, from);
      }
    }
    const HostTensors own = host_tensors(HostCopy::write);
    const CheckpointTensors to = own.views();
    const auto copy = [](const View& target, const View& source) {
      if (!target.empty() && target.data != source.data) {
        std::copy_n(source.host<float>(), source.size(), target.host<float>());
      }
    };
    copy(to.weights, tensors.weights);
    copy(to.m, tensors.m);
    copy(to.v, tensors.v);
    copy(to.ema, tensors.ema);
  }
  after_load(true);
}

void Trainer::after_load(bool with_average) {
  if (!weights_.average().empty() && !with_average) {
    backend_->copy(weights_.average(), weights_.masters());
  }
  weights_.refresh_copy();
  stepper_.set_updates(state_.updates);
}

void Trainer::start_batches() {
  batches_.reset();  // its thread uses the batcher
  batcher_.seek(state_.cursor);
  last_epochs_done_ = state_.epochs_done;
  batches_.emplace([this] { return batcher_.next(); });
}

// ---- the loop

TrainOutcome Trainer::run() {
  agree();
  std::optional<std::string> end = end_reached();
  while (!end && stop_signal_ == 0) {
    give_step();
    while (given_.size() > (backend_->fixed_shape() ? kStepsUnderWay : 0)) {
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

// Clocks and signals are each rank's own: the first rank's time and any rank's signal count for all.
void Trainer::agree() {
  tick();
  state_.elapsed_seconds = team_run_.broadcast(state_.elapsed_seconds);
  stop_signal_ = static_cast<int>(team_run_.largest(signals_.stop_signal()));
  save_asked_ = team_run_.largest(signals_.take_save_request() || save_asked_ ? 1 : 0) > 0;
  pause_asked_ = false;
}

void Trainer::give_step() {
  const auto begin = Clock::now();
  GivenStep given;
  given.step = batches_->next();
  window_.data_seconds += seconds_since(begin);

  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(this->given());
  state.loss_scale = 1.0F / static_cast<float>(given.step.target_tokens);
  given.learning_rate = learning_rate(config_.schedule, this->given()) * state_.learning_rate_factor;
  state.learning_rate = static_cast<float>(given.learning_rate);
  given.pause = wants_pause();
  state.pause = given.pause ? 1 : 0;
  given.flops = step_flops(config_.model, given.step);
  given.traffic = stepper_.planned_traffic(given.step);
  give_to_backend(given.step, state);
  last_epochs_done_ = given.step.epochs_done;
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
  observer_->set_step(state_.step);
  state_.updates = update.updates;
  state_.cursor = step.after;
  state_.epochs_done = step.epochs_done;
  state_.pairs += step.pairs;
  state_.source_tokens += step.source_tokens;
  state_.target_tokens += step.target_tokens;

  window_.step_seconds += seconds_since(counted_);
  counted_ = Clock::now();
  window_.communication_seconds += result.clock.communication_seconds();
  window_.idle_seconds += ended_ == 0 ? 0 : static_cast<double>(result.clock.begin - ended_) * 1e-9;
  ended_ = result.clock.end;
  window_.flops += given.flops;
  window_.traffic = window_.traffic + given.traffic;
  pause_asked_ = pause_asked_ || (team_update_ ? result.pause > 0 : given.pause);
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
  start_batches();
}

// ---- limits

// By what all ranks know alike.
bool Trainer::pause_due() const {
  const auto every = [this](int64_t steps) { return steps > 0 && given() % steps == 0; };
  const StopConfig& stop = config_.stop;
  return every(config_.validation.every_steps) || every(config_.checkpoint.every_steps) ||
         (stop.max_steps > 0 && given() >= stop.max_steps) || pause_asked_ || save_asked_ ||
         (stop.max_epochs > 0 && last_epochs_done_ >= stop.max_epochs) ||
         state_.skipped_in_a_row >= config_.nonfinite.max_skips;
}

bool Trainer::wants_pause() const {
  const auto minutes = [this](double period, double since) {
    return period > 0 && elapsed() + seconds_since(ticked_) - since >= period * 60;
  };
  return minutes(config_.stop.max_minutes, 0) || minutes(config_.validation.every_minutes, validated_at_) ||
         minutes(config_.checkpoint.every_minutes, saved_at_) || signals_.stop_signal() != 0 ||
         signals_.save_requested();
}

void Trainer::tick() {
  const auto now = Clock::now();
  state_.elapsed_seconds += std::chrono::duration<double>(now - ticked_).count();
  ticked_ = now;
}

// ---- log, validation, checkpoints

void Trainer::event(const std::string& name, const std::string& details) {
  observer_->write(Record{"event", state_.step}.add("event", name).add("details", details));
}

void Trainer::show_progress() {
  if (log::on_terminal() && window_.totals.tokens > 0) {
    log::status(status_line(progress_of(window_, state_, config_.stop.max_steps, share_done()), log::columns()));
  }
}

void Trainer::write_log() {
  if (window_.totals.tokens > 0) {
    const Traffic now = communicator_.traffic();
    if (now.sent > 0) {  // otherwise the engine does not count, and the plan stands for it
      window_.traffic = {now.sent - traffic_.sent, now.received - traffic_.received};
      traffic_ = now;
    }
    observer_->write(train_record(window_, state_, team_run_.first()));
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
    if (team_update_) {
      team_update_->complete_average();
    }
    const ModelState::UseAverage average(weights_);
    Arena arena([this](size_t bytes) { return backend_->allocate(bytes); });
    result = validator_.run(weights_.weights(), arena, [this] {
      if (signals_.stop_signal() != 0 && team_run_.size() == 1) {
        throw StopAsked();
      }
    });
  } catch (const StopAsked&) {
    log::info("the validation at step {} is left out: a signal asks to stop", grouped(state_.step));
    stop_signal_ = signals_.stop_signal();
    return;
  }
  tick();
  state_.elapsed_seconds = team_run_.broadcast(state_.elapsed_seconds);
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
  report_validation(result, state_, seconds_since(begin), *observer_);
  save();
  observer_->write_report();
}

bool Trainer::checkpoint_due() const {
  const CheckpointConfig& when = config_.checkpoint;
  return saved_step_ != state_.step && ((when.every_steps > 0 && state_.step % when.every_steps == 0) ||
                                        (when.every_minutes > 0 && elapsed() - saved_at_ >= when.every_minutes * 60));
}

void Trainer::save() {
  const auto begin = Clock::now();
  if (observer_) {
    observer_->sync();
  }
  if (team_update_) {
    team_update_->complete_average();
  }
  {
    const HostTensors tensors = host_tensors(HostCopy::read);
    if (team_run_.keeps_checkpoints()) {
      write_checkpoint(tensors.views());
    }
  }
  team_run_.barrier();
  tick();
  save_asked_ = false;
  saved_step_ = state_.step;
  saved_at_ = elapsed();
  window_.checkpoint_seconds += seconds_since(begin);
}

void Trainer::write_checkpoint(const CheckpointTensors& tensors) {
  const Checkpoint checkpoint{state_, to_toml(config_), data_.source.bytes(),
                              data_.joint ? "" : data_.target.front().bytes()};
  const auto directory = save_checkpoint(run_.root(), checkpoint, model_.parameters(), tensors);
  if (state_.best_score && state_.best_step == state_.step) {
    set_best(run_.root(), directory);
  }
  remove_old_checkpoints(run_.root(), config_.checkpoint, config_.stop.metric);
}

}  // namespace

TrainOutcome train_model(TrainConfig config, bool start_over, double check_share) {
  Prepared data = Prepared::open(config.data);
  complete_config(config, data);
  TeamRun team_run(config, data, start_over);
  log::set_quiet(!team_run.first());
  log::open_file(team_run.first() ? team_run.directory().log() : team_run.directory().rank_log(team_run.rank()));
  TrainOutcome outcome;
  try {
    Trainer trainer(config, std::move(data), team_run, check_share);
    trainer.begin();
    outcome = trainer.run();
  } catch (const std::exception& error) {
    if (team_run.size() > 1) {
      team_run.team().stop(error.what());  // the others hear why
    }
    throw;
  }
  team_run.leave();
  log::close_file();
  return outcome;
}

}  // namespace tandem
