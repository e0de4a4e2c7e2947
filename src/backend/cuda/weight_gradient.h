// The gradient of a weight matrix, a product over all tokens, on Hopper.
#pragma once

#include <cuda_runtime.h>

#include "tensor/view.h"

namespace tandem::cuda {

// Whether dw [m, n] = dy' x can be computed here, and is faster than by cuBLASLt: a question of the GPU, of sizes and
// of addresses.
bool weight_gradient_possible(const View& dw, const View& dy, const View& x);

// dw = or += dy' x. dy [tokens, m] and x [tokens, n] in bf16, dw in f32.
void weight_gradient(const View& dw, const View& dy, const View& x, bool accumulate, cudaStream_t stream);

}  // namespace tandem::cuda
