// A sublayer's last product on Hopper with what comes behind it: dropout, the residual connection and the norm. The
// product itself never goes to memory.
#pragma once

#include <cuda_runtime.h>

#include "backend/backend.h"

namespace tandem::backend::cuda {

// Whether it is computed here: on this GPU, with these sizes and addresses, and in less time than one after the other.
bool product_norm_possible(const op::LinearResidualNorm& p, int processors);

void product_norm(const op::LinearResidualNorm& p, int processors, cudaStream_t stream);

}  // namespace tandem::backend::cuda
