// Our own matrix products, on Hopper: what cuBLASLt has no epilogue for. products.h says when they are taken.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/products.h"

namespace tandem::backend::cuda {

// Tiles of fused_product.cu and linear_residual_norm.cu: of the result, that a block has, and of the depth, that are
// one stage (a row of the swizzle, 128 bytes).
constexpr int kTileRows = 128, kTileCols = 256, kDepth = 64;

// ---- fused_product.cu: epilogues whose own pass over [rows, out] would cost as much as the product

// y = dropout(relu(x w' + bias)); gate (or empty): a bit for each element, 1 where y is not 0.
void fused_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream);

// dx = (dy w) * gate * scale; partial (or null) [fused_parts(rows), cols] = the sums of dx over the rows of each part.
void fused_backward(const View& dx, const ConstView& dy, const ConstView& w, const ConstView& gate, float scale,
                    float* partial, int processors, cudaStream_t stream);
int64_t fused_parts(int64_t rows);

// Of each row of logits. Parts: of kExponentialCols columns, side by side in rows of [parts, rows].
template <class H>
struct ExponentialRows {
  const int32_t* labels;  // -1: none
  float* shifts;          // times log2(e): so far above the label's logit that its exponential is small
  float* label_logits;    // where there is a label
  float* sums;            // parts of the sum of e^(logit - shift) over all columns but the label
  H* most;                // parts of the largest logit, the label's left out
};
constexpr int kExponentialCols = 256;
// No exponential is larger than 2^kMostExponent, nor is the sum of 2^26 of them infinite: larger logits count as
// shift + kMostExponent at the most.
constexpr int kMostExponent = 100;

// y = e^(x w' - shift), 0 at the label; x w' is rounded to 16 bits first.
void fused_exponentials(const View& y, const ConstView& x, const ConstView& w, const ExponentialRows<Bf16>& rows,
                        int processors, cudaStream_t stream);

// ---- projected_loss.cu: the loss around fused_exponentials

constexpr int kWidestLoss = 1024;                 // columns of x
constexpr int64_t kMostPieces = INT32_MAX / 256;  // rows of w
size_t loss_scratch_bytes(const op::ProjectedLoss& loss, int processors);

// ---- linear_residual_norm.cu and linear_backward_weights.cu

// How many clusters of four blocks run at one time; none where the GPU has no code for Hopper's own instructions.
std::optional<int> norm_clusters_of_4(int processors);

constexpr int kPairCols = 128;  // of a dw, that a cluster of two blocks has

}  // namespace tandem::backend::cuda
