// What a run counts: how its state follows from a step, a validation and a return to a former state.
#pragma once

#include "backend/operands.h"
#include "store/checkpoint.h"

namespace tandem::train {

void count_step(store::CheckpointState& state, const data::TrainStep& step, const backend::UpdateState& update);

// `metrics` were measured at the state's step; `metric` is what the best step is known by.
void count_validation(store::CheckpointState& state, const std::map<std::string, double>& metrics,
                      store::Metric metric);

// The run goes on from `former`, with a lower learning rate, after steps of `failed` were not finite.
store::CheckpointState rolled_back(const store::CheckpointState& failed, store::CheckpointState former,
                                   double learning_rate_factor);

}  // namespace tandem::train
