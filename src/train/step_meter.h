// Measures the steps of a run on the host, from being given to their results, and adds them up to the window of steps
// that the next log line and `train` record are about.
#pragma once

#include "core/stopwatch.h"
#include "observe/fields.h"
#include "train/learner.h"

namespace tandem::train {

// A step that was given to the backend and whose result is not there yet.
struct GivenStep {
  data::TrainStep step;
  observe::TrainPoint counts;  // what its record needs and is known without its result; the traffic is by plan
  bool pause = false;          // this rank wants a pause after it
};

// number: of the step, from 1.
observe::TrainPoint counts_of(const data::TrainStep& step, int64_t number, double learning_rate,
                              const Learner& learner);

class StepMeter {
 public:
  // The communicator of gradients; it must outlive the meter.
  explicit StepMeter(const dist::Communicator& communicator) : communicator_(communicator) {}

  void begin();   // before the first step
  void resume();  // after a pause, whose time belongs to no step
  void forget();  // drops the window: its steps are undone

  void wait_for_data(double seconds);
  void count(const GivenStep& given, const StepResult& result, double elapsed_seconds);
  void add_validation(double seconds) { window_.validation_seconds += seconds; }
  void add_checkpoint(double seconds) { window_.checkpoint_seconds += seconds; }

  bool has_losses() const { return losses_.tokens > 0; }  // a step of the window was not skipped
  const observe::TrainPoint& window() const { return window_; }
  observe::TrainPoint take_window();  // begins the next window

 private:
  const dist::Communicator& communicator_;
  observe::TrainPoint window_;
  backend::LossTotals losses_;  // of the window's steps that were not skipped
  Stopwatch counted_;           // since the last result was there
  uint64_t ended_ = 0;          // the last step, by the device's clock; 0 = there was a pause
  double transferred_ = 0;      // seconds, up to the last window
  dist::Traffic traffic_;       // up to the last window
};

}  // namespace tandem::train
