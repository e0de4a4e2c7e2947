// What a run counts: how its state follows from a step, a validation and a return to a former state.
#pragma once

#include "backend/operands.h"
#include "store/checkpoint.h"

namespace tandem {

void count_step(CheckpointState& state, const TrainStep& step, const UpdateState& update);

// `metrics` were measured at the state's step; `metric` is what the best step is known by.
void count_validation(CheckpointState& state, const std::map<std::string, double>& metrics, Metric metric);

// The run goes on from `former`, with a lower learning rate, after steps of `failed` were not finite.
CheckpointState rolled_back(const CheckpointState& failed, CheckpointState former, double learning_rate_factor);

}  // namespace tandem
