// A training run in progress, as one rank sees it. Written in three parts: training.cc gives steps and takes their
// results, training_begin.cc finds the state to begin with, training_pause.cc does what is done between steps:
// agreement of the ranks, log, validation, checkpoints.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/signals.h"
#include "data/prefetch.h"
#include "data/prepared.h"
#include "optim/adam.h"
#include "store/checkpoint.h"
#include "train/host_tensors.h"
#include "train/memory_plan.h"
#include "train/model_state.h"
#include "train/pauses.h"
#include "train/reporting.h"
#include "train/run_observer.h"
#include "train/stepper.h"
#include "train/team_run.h"
#include "train/trainer.h"
#include "train/validator.h"

namespace tandem {

// A step that was given to the backend and whose result is not there yet; its sentences are no longer needed.
class CheckedBackend;

struct GivenStep {
  TrainStep step;
  TrainPoint counts;   // for its record: what is known without its result; traffic is by plan
  bool pause = false;  // this rank wants a pause after it
};

class Training {
 public:
  Training(const TrainConfig& config, Prepared data, TeamRun& team_run, double check_share);

  void begin();  // fresh weights, or those of config.init; or the latest checkpoint
  TrainOutcome run();

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  std::string use_algorithms();
  void require_same_tokenizer(const Checkpoint& checkpoint, const std::filesystem::path& from) const;
  void keep_statistics() const;
  void begin_fresh();
  bool resume();
  bool load_newest(const std::optional<std::filesystem::path>& found);
  void load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared);
  void after_load(bool with_average);
  void start_batches();
  void tell_setup();

  void give_step();
  TrainPoint counts_of(const TrainStep& step) const;
  void give_to_backend(const TrainStep& step, const StepState& state);
  void take_result();
  void take_all_results();
  void count(const GivenStep& given, const StepResult& result);
  void roll_back();

  RoundCapacity fixed_round() const { return plan_.layouts.empty() ? RoundCapacity{} : plan_.batch.round; }
  int64_t given() const { return state_.step + static_cast<int64_t>(given_.size()); }  // steps given so far
  bool pause_due() const;    // something must be done between the steps that were given and the next
  bool wants_pause() const;  // this rank does, for a reason that the others do not know: a clock or a signal
  void agree_on_time();
  void agree();  // what all ranks go by in the pause
  std::optional<std::string> end_reached() const { return tandem::end_reached(config_.stop, state_); }
  double share_done() const { return tandem::share_done(config_.stop, state_); }
  double elapsed() const { return state_.elapsed_seconds; }
  double seconds_left() const { return share_done() > 0 ? elapsed() * (1 - share_done()) / share_done() : -1; }
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
  CheckedBackend* checked_ = nullptr;  // the backend, if a share of the steps is checked
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
  TrainPoint window_;  // since the last log line
  LossTotals losses_;  // of its steps that were not skipped
  Clock::time_point ticked_ = Clock::now();
  Clock::time_point counted_ = Clock::now();  // when the last result was there
  uint64_t ended_ = 0;                        // the last step, by the device's clock; 0 = there was a pause
  double transferred_ = 0;                    // seconds, up to the last window
  Traffic traffic_;                           // up to the last window
  double validated_at_ = 0;                   // elapsed seconds at the last validation
  double saved_at_ = 0;                       // and at the last checkpoint
  int64_t saved_step_ = -1;
  double last_epochs_done_ = 0;  // after the last step that was given
};

}  // namespace tandem
