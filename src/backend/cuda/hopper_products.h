// Our own matrix products for Hopper, with epilogues that cuBLASLt does not have. products.h says when they are used.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/products.h"

namespace tandem::backend::cuda {

// Tile sizes of fused_product.cu and linear_residual_norm.cu: a block's tile of the result, and the depth of one stage
// (a row of the swizzle, 128 bytes).
constexpr int kTileRows = 128, kTileCols = 256, kDepth = 64;

// ---- fused_product.cu: epilogues whose own pass over [rows, out] would cost as much as the product

// y = dropout(relu(x w' + bias)); gate: a bit for each element, 1 where y is not 0; may be empty.
void fused_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream);

// dx = (dy w) * gate * scale; partial (may be null) [fused_parts(rows), cols] = the sums of dx over each part's rows.
void fused_backward(const View& dx, const ConstView& dy, const ConstView& w, const ConstView& gate, float scale,
                    float* partial, int processors, cudaStream_t stream);
int64_t fused_parts(int64_t rows);

// The data of each row of logits. A part is kExponentialCols columns; arrays of parts are [parts, rows].
template <class H>
struct ExponentialRows {
  const int32_t* labels;  // -1: none
  float* shifts;          // times log2(e); so far above the label's logit that its exponential is small
  float* label_logits;    // only of rows with a label
  float* sums;            // parts of the sum of e^(logit - shift) over all columns but the label
  H* most;                // parts of the largest logit, the label's left out
};
constexpr int kExponentialCols = 256;
// No exponential is larger than 2^kMostExponent, nor is the sum of 2^26 of them infinite: larger logits count as
// shift + kMostExponent.
constexpr int kMostExponent = 100;

// y = e^(x w' - shift), 0 at the label; x w' is rounded to 16 bits first.
void fused_exponentials(const View& y, const ConstView& x, const ConstView& w, const ExponentialRows<Bf16>& rows,
                        int processors, cudaStream_t stream);

// ---- projected_loss.cu: the loss around fused_exponentials

constexpr int kWidestLoss = 1024;                 // columns of x
constexpr int64_t kMostPieces = INT32_MAX / 256;  // rows of w
size_t loss_scratch_bytes(const op::ProjectedLoss& loss, int processors);

// ---- linear_residual_norm.cu and linear_backward_weights.cu

// The number of clusters of four blocks that run together; none if this GPU has no code with Hopper's own instructions.
std::optional<int> norm_clusters_of_4(int processors);

constexpr int kPairCols = 128;  // columns of dw per cluster of two blocks

}  // namespace tandem::backend::cuda
