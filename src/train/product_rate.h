// What a backend's matrix products reach at best, measured.
#pragma once

#include "backend/backend.h"

namespace tandem::train {

// Random numbers in [-0.5, 0.5), in the backend's memory: to is f32 and contiguous.
void fill_random(backend::Backend& backend, const View& to, uint32_t seed);

// Rows and columns of the matrices to measure with: large, but no more than half of the free memory. element_bytes: of
// all of them together.
int64_t measured_size(const backend::Backend& backend, int64_t element_bytes);

// FLOP/s of a large product of random numbers in this type. repeats 0: as many as take a fraction of a second.
double measure_product_rate(backend::Backend& backend, DType compute, int repeats = 0);

}  // namespace tandem::train
