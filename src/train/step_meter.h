// Measures steps on the host, from being given to their results, and sums them up in the window for the next log line
// and `train` record.
#pragma once

#include "core/stopwatch.h"
#include "observe/fields.h"
#include "train/learner.h"

namespace tandem::train {

// A step given to the backend whose result has not arrived yet.
struct GivenStep {
  data::TrainStep step;
  observe::TrainPoint counts;  // the part of its record that does not need its result; traffic as planned
  bool pause = false;          // this rank wants to pause after it
};

// number: of the step, from 1.
observe::TrainPoint counts_of(const data::TrainStep& step, int64_t number, double learning_rate,
                              const Learner& learner);

class StepMeter {
 public:
  // communicator: adds up gradients; must outlive the meter.
  explicit StepMeter(const dist::Communicator& communicator) : communicator_(communicator) {}

  void begin();   // before the first step
  void resume();  // after a pause, which counts for no step
  void forget();  // drops the window, because its steps are undone

  void wait_for_data(double seconds);
  void count(const GivenStep& given, const StepResult& result, double elapsed_seconds);
  void add_validation(double seconds) { window_.validation_seconds += seconds; }
  void add_checkpoint(double seconds) { window_.checkpoint_seconds += seconds; }

  bool has_losses() const { return losses_.tokens > 0; }  // at least one step of the window was not skipped
  const observe::TrainPoint& window() const { return window_; }
  observe::TrainPoint take_window();  // begins the next window

 private:
  const dist::Communicator& communicator_;
  observe::TrainPoint window_;
  backend::LossTotals losses_;  // sums over the window's steps that were not skipped
  Stopwatch counted_;           // time since the last result
  uint64_t ended_ = 0;          // end of the last step by the device's clock; 0 = there was a pause
  double transferred_ = 0;      // seconds of transfers before this window
  dist::Traffic traffic_;       // traffic before this window
};

}  // namespace tandem::train
