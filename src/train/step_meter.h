// Measures the steps of a run on the host, from being given to their results, and adds them up to the window of steps
// that the next log line and `train` record are about.
#pragma once

#include "core/stopwatch.h"
#include "train/reporting.h"
#include "train/stepper.h"

namespace tandem {

// A step that was given to the backend and whose result is not there yet.
struct GivenStep {
  TrainStep step;
  TrainPoint counts;   // what its record needs and is known without its result; the traffic is by plan
  bool pause = false;  // this rank wants a pause after it
};

// number: of the step, from 1.
TrainPoint counts_of(const TrainStep& step, int64_t number, double learning_rate, const ModelConfig& model,
                     const Stepper& stepper);

class StepMeter {
 public:
  // The communicator of gradients; it must outlive the meter.
  explicit StepMeter(const Communicator& communicator) : communicator_(communicator) {}

  void begin();   // before the first step
  void resume();  // after a pause, whose time belongs to no step
  void forget();  // drops the window: its steps are undone

  void wait_for_data(double seconds);
  void count(const GivenStep& given, const StepResult& result, double elapsed_seconds);
  void add_validation(double seconds) { window_.validation_seconds += seconds; }
  void add_checkpoint(double seconds) { window_.checkpoint_seconds += seconds; }

  bool has_losses() const { return losses_.tokens > 0; }  // a step of the window was not skipped
  const TrainPoint& window() const { return window_; }
  TrainPoint take_window();  // begins the next window

 private:
  const Communicator& communicator_;
  TrainPoint window_;
  LossTotals losses_;       // of the window's steps that were not skipped
  Stopwatch counted_;       // since the last result was there
  uint64_t ended_ = 0;      // the last step, by the device's clock; 0 = there was a pause
  double transferred_ = 0;  // seconds, up to the last window
  Traffic traffic_;         // up to the last window
};

}  // namespace tandem
