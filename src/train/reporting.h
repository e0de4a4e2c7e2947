// What the trainer writes about its steps and validations: console lines and records.
#pragma once

#include "observe/fields.h"
#include "store/checkpoint.h"
#include "train/run_observer.h"
#include "train/validator.h"

namespace tandem::train {

// Adds the loss of a step to the means of a window; `totals` are those of its steps so far.
void add_losses(observe::TrainPoint& window, backend::LossTotals& totals, const backend::LossTotals& step);

// Logs a validation and writes its records: "valid" and one "sample" for each sample translation.
void report_validation(const ValidationResult& result, const store::CheckpointState& state, double seconds,
                       RunObserver& observer);

// What TensorBoard compares runs by.
observe::Hyperparameters hyperparameters(const TrainConfig& config);

}  // namespace tandem::train
