// What a backend's matrix products reach at best, measured.
#pragma once

#include "backend/backend.h"

namespace tandem {

// FLOP/s of a large product of random numbers in this type. Takes a fraction of a second.
double measure_product_rate(Backend& backend, DType compute);

}  // namespace tandem
