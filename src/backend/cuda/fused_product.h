// Matrix products on Hopper with an epilogue that cuBLASLt does not have and whose own pass over [rows, out] would cost
// as much as the product: relu, dropout and their gradients in a feed-forward layer, exponentials of logits.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
#include "tensor/view.h"

namespace tandem::backend::cuda {

// Whether result [rows, cols] = a times w, with a row of bits (i32, or empty) for each row, can be computed here: on
// this GPU, with these sizes and addresses.
bool fused_product_possible(const View& result, const ConstView& a, const ConstView& w, const ConstView& gate);

// y = dropout(relu(x w' + bias)); gate (or empty): a bit for each element, 1 where y is not 0.
void fused_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream);

// dx = (dy w) * gate * scale; partial (or null) [fused_parts(rows), cols] = the sums of dx over the rows of each part.
void fused_backward(const View& dx, const ConstView& dy, const ConstView& w, const ConstView& gate, float scale,
                    float* partial, int processors, cudaStream_t stream);
int64_t fused_parts(int64_t rows);

// Of each row of logits. Parts: of kExponentialCols columns, side by side in rows of [parts, rows].
struct ExponentialRows {
  const int32_t* labels;  // -1: none
  const float* shifts;    // times log2(e): so far above the label's logit that its exponential is small
  float* label_logits;    // where there is a label
  float* sums;            // parts of the sum of e^(logit - shift) over all columns but the label
  Bf16* most;             // parts of the largest logit, the label's left out
};
constexpr int kExponentialCols = 256;
// No exponential is larger than 2^kMostExponent, nor is the sum of 2^26 of them infinite: larger logits count as
// shift + kMostExponent at the most.
constexpr int kMostExponent = 100;

// y = e^(x w' - shift), 0 at the label; x w' is rounded to bf16 first.
void fused_exponentials(const View& y, const ConstView& x, const ConstView& w, const ExponentialRows& rows,
                        int processors, cudaStream_t stream);

}  // namespace tandem::backend::cuda
