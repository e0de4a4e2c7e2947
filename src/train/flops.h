// The number of floating-point operations in a step, and the measured peak rates of a backend.
#pragma once

#include "backend/backend.h"
#include "data/batcher.h"
#include "model/config.h"

namespace tandem::train {

int64_t tokens_of(const data::TrainStep& step);  // tokens in its micro-batches, both sides

// FLOPs of the micro-batches' matrix products and attention, forward and backward (3 x forward), on true tokens only.
double step_flops(const model::ModelConfig& model, const data::TrainStep& step);

// FLOP/s of a large product of random numbers in this type. repeats 0: enough for a fraction of a second.
double measure_product_rate(backend::Backend& backend, DType compute, int repeats = 0);

// Bytes per second, read plus written, of a large copy.
double measure_copy_rate(backend::Backend& backend, int repeats);

}  // namespace tandem::train
