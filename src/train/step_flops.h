// How much arithmetic a step is.
#pragma once

#include "data/batcher.h"
#include "model/config.h"

namespace tandem::train {

int64_t tokens_of(const data::TrainStep& step);  // in its micro-batches, of both sides

// FLOPs of the micro-batches' matrix products and attention, forward and backward (3 x forward), on true tokens.
double step_flops(const model::ModelConfig& model, const data::TrainStep& step);

}  // namespace tandem::train
