// What the trainer says about its steps and validations: console lines and records.
#pragma once

#include "dist/traffic.h"
#include "observe/progress.h"
#include "store/checkpoint.h"
#include "train/run_observer.h"
#include "train/validator.h"

namespace tandem {

// What happened since the last log line.
struct Window {
  LossTotals totals;  // of the steps that were not skipped
  int64_t steps = 0;
  int64_t skipped = 0;
  int64_t pairs = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  double step_seconds = 0;           // whole steps: data wait and compute
  double data_seconds = 0;           // of these, waiting for data
  double communication_seconds = 0;  // of these, waiting for the other ranks and doing nothing else
  double transfer_seconds = 0;       // that sums over the ranks took, hidden behind compute or not
  double idle_seconds = 0;           // between two steps, by the device's clock
  double flops = 0;                  // of this rank's part of the steps
  int64_t rows = 0;                  // that this rank worked through, of both sides
  int64_t dead_rows = 0;             // of these, without a token
  Traffic traffic;                   // of this rank
  double validation_seconds = 0;
  double checkpoint_seconds = 0;
  double gradient_norm = 0;          // of the last step
  double clipped_gradient_norm = 0;  //
  double learning_rate = 0;          //

  void add(const LossTotals& more);
};

// The record "train" of a window; losses are means a target token over the global batches.
// Ranks other than the first tell only what is their own: the clock and the bytes.
Record train_record(const Window& window, const CheckpointState& state, bool first);

// `share` of the run is done.
Progress progress_of(const Window& window, const CheckpointState& state, int64_t last_step, double share);

// Logs a validation and writes its records: "valid" and one "sample" for each sample translation.
void report_validation(const ValidationResult& result, const CheckpointState& state, double seconds,
                       RunObserver& observer);

// What TensorBoard compares runs by.
Hyperparameters hyperparameters(const TrainConfig& config);

}  // namespace tandem
