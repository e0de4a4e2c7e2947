// Matrix products of a feed-forward layer with relu, dropout and their gradients in the product's epilogue, on Hopper.
//
// cuBLASLt has no dropout, and a pass of its own over [rows, out] costs as much as the product.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/dropout.cuh"
#include "tensor/view.h"

namespace tandem::cuda {

// Whether result [rows, cols] = a times w, with a row of bits (i32, or empty) for each row, can be computed here: on
// this GPU, with these sizes and addresses.
bool fused_product_possible(const View& result, const View& a, const View& w, const View& gate);

// y = dropout(relu(x w' + bias)); gate (or empty): a bit for each element, 1 where y is not 0.
void fused_forward(const View& y, const View& x, const View& w, const View& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream);

// dx = (dy w) * gate * scale; partial (or null) [fused_parts(rows), cols] = the sums of dx over the rows of each part.
void fused_backward(const View& dx, const View& dy, const View& w, const View& gate, float scale, float* partial,
                    int processors, cudaStream_t stream);
int64_t fused_parts(int64_t rows);

}  // namespace tandem::cuda
