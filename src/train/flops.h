// How much arithmetic a step is, and what a backend reaches at best, measured.
#pragma once

#include "backend/backend.h"
#include "data/batcher.h"
#include "model/config.h"

namespace tandem::train {

int64_t tokens_of(const data::TrainStep& step);  // in its micro-batches, of both sides

// FLOPs of the micro-batches' matrix products and attention, forward and backward (3 x forward), on true tokens.
double step_flops(const model::ModelConfig& model, const data::TrainStep& step);

// FLOP/s of a large product of random numbers in this type. repeats 0: as many as take a fraction of a second.
double measure_product_rate(backend::Backend& backend, DType compute, int repeats = 0);

// Bytes a second, read and written, of a large copy.
double measure_copy_rate(backend::Backend& backend, int repeats);

}  // namespace tandem::train
