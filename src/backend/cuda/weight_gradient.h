// The gradients of two weight matrices, products over all tokens, by one kernel on Hopper.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "backend/backend.h"

namespace tandem::backend::cuda {

// Whether the gradients can be computed here, and are faster than one by one by cuBLASLt: a question of the GPU, of
// their number, of sizes and of addresses.
bool weight_gradients_possible(std::span<const WeightGradient> gradients, int processors);

// dw = or += dy' x of each; dbias is left alone. dy and x in bf16, dw in f32.
void weight_gradients(std::span<const WeightGradient> gradients, bool accumulate, int processors, cudaStream_t stream);

}  // namespace tandem::backend::cuda
