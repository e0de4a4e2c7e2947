#include "core/log.h"
#include "observe/memory.h"
#include "observe/progress.h"
#include "train/training.h"

namespace tandem {

namespace {

struct StopAsked {};  // thrown and caught inside a validation

}  // namespace

// ---- agreement and limits

// Clocks and signals are each rank's own: the first rank's time and any rank's signal count for all.
void Training::agree_on_time() {
  tick();
  state_.elapsed_seconds = team_run_.broadcast(state_.elapsed_seconds);
}

void Training::agree() {
  agree_on_time();
  stop_signal_ = static_cast<int>(team_run_.largest(signals_.stop_signal()));
  save_asked_ = team_run_.largest(signals_.take_save_request() || save_asked_ ? 1 : 0) > 0;
  pause_asked_ = false;
}

// By what all ranks know alike.
bool Training::pause_due() const {
  const auto every = [this](int64_t steps) { return steps > 0 && given() % steps == 0; };
  const StopConfig& stop = config_.stop;
  return every(config_.validation.every_steps) || every(config_.checkpoint.every_steps) ||
         (stop.max_steps > 0 && given() >= stop.max_steps) || pause_asked_ || save_asked_ ||
         (stop.max_epochs > 0 && last_epochs_done_ >= stop.max_epochs) ||
         state_.skipped_in_a_row >= config_.nonfinite.max_skips;
}

bool Training::wants_pause() const {
  const auto minutes = [this](double period, double since) {
    return period > 0 && elapsed() + seconds_since(ticked_) - since >= period * 60;
  };
  return minutes(config_.stop.max_minutes, 0) || minutes(config_.validation.every_minutes, validated_at_) ||
         minutes(config_.checkpoint.every_minutes, saved_at_) || signals_.stop_signal() != 0 ||
         signals_.save_requested();
}

void Training::tick() {
  const auto now = Clock::now();
  state_.elapsed_seconds += std::chrono::duration<double>(now - ticked_).count();
  ticked_ = now;
}

// ---- log, validation, checkpoints

void Training::event(const std::string& name, const std::string& details) {
  observer_->write(Record{"event", state_.step}.add("event", name).add("details", details));
}

void Training::show_progress() {
  if (log::on_terminal() && losses_.tokens > 0) {
    log::status(status_line(window_, config_.stop.max_steps, seconds_left(), log::columns()));
  }
}

void Training::write_log() {
  if (losses_.tokens > 0) {
    const Traffic now = communicator_.traffic();
    if (now.sent > 0) {  // otherwise the engine does not count, and the plan stands for it
      window_.sent_bytes = static_cast<double>(now.sent - traffic_.sent);
      window_.received_bytes = static_cast<double>(now.received - traffic_.received);
      traffic_ = now;
    }
    window_.transfer_seconds = communicator_.transfer_seconds() - transferred_;
    transferred_ += window_.transfer_seconds;
    window_.peak_memory_bytes = static_cast<double>(peak_memory());
    observer_->write(train_record(window_, team_run_.first()));
    log::info("{}", console_line(window_, config_.stop.max_steps, seconds_left()));
  }
  window_ = {};
  losses_ = {};
}

bool Training::validation_due() const {
  const ValidationConfig& when = config_.validation;
  return (when.every_steps > 0 && state_.step % when.every_steps == 0 && state_.metrics_step != state_.step) ||
         (when.every_minutes > 0 && elapsed() - validated_at_ >= when.every_minutes * 60);
}

void Training::validate() {
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
  agree_on_time();
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

bool Training::checkpoint_due() const {
  const CheckpointConfig& when = config_.checkpoint;
  return saved_step_ != state_.step && ((when.every_steps > 0 && state_.step % when.every_steps == 0) ||
                                        (when.every_minutes > 0 && elapsed() - saved_at_ >= when.every_minutes * 60));
}

void Training::save() {
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
  agree_on_time();
  save_asked_ = false;
  saved_step_ = state_.step;
  saved_at_ = elapsed();
  window_.checkpoint_seconds += seconds_since(begin);
}

void Training::write_checkpoint(const CheckpointTensors& tensors) {
  CheckpointState state = state_;
  state.round_source = fixed_round().source;
  state.round_target = fixed_round().target;
  const Checkpoint checkpoint{state, team_run_.settings(), data_.source.bytes(),
                              data_.joint ? "" : data_.target.front().bytes()};
  const auto directory = save_checkpoint(run_.root(), checkpoint, model_.parameters(), tensors);
  if (state_.best_score && state_.best_step == state_.step) {
    set_best(run_.root(), directory);
  }
  const KeptCheckpoints keep{.newest = config_.checkpoint.keep_last, .best = config_.checkpoint.keep_best};
  remove_old_checkpoints(run_.root(), keep, config_.stop.metric);
}

}  // namespace tandem
