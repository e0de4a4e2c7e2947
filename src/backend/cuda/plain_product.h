// Matrix products on Hopper for results of about as many tiles as there are processors. cuBLASLt's kernels come only
// when the kernel before has ended; these are in place by then (see launch.cuh), with their factor w in the L2 cache.
#pragma once

#include <cuda_runtime.h>

#include "tensor/view.h"

namespace tandem::cuda {

// Whether result [rows, cols], from factors a and w, is computed here: on this GPU, with these sizes and addresses, and
// in less time than by cuBLASLt.
bool plain_product_possible(const View& result, const ConstView& a, const ConstView& w);

// y = x w' + bias (or empty)
void plain_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, int processors,
                   cudaStream_t stream);

// dx = dy w, or added to dx: the sum is rounded to bf16 once.
void plain_backward(const View& dx, const ConstView& dy, const ConstView& w, bool accumulate, int processors,
                    cudaStream_t stream);

}  // namespace tandem::cuda
