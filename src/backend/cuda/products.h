// Decides which kernel computes a product, from the op's shape, epilogue and addresses (which are not dereferenced) and
// from the GPU's properties; the ops follow it. Constants and their measurements: products.cu.
#pragma once

#include "backend/backend.h"

namespace tandem::backend::cuda {

enum class ProductKernel : uint8_t {
  cublas,             // cuBLASLt (gemm.h) does it all, with bias and relu in its epilogue
  cublas_and_passes,  // passes over its result do what it has no epilogue for
  fused,              // fused_product.cu
  norm_of_2,          // linear_residual_norm.cu: a row's columns in clusters of two blocks, or of four
  norm_of_4,
  pair_64,  // linear_backward_weights.cu, two products at once; rows of a dw per cluster of two blocks
  pair_128,
  pair_256,
};

// The properties of a GPU that the decision depends on.
struct Chip {
  int processors = 0;     // streaming multiprocessors
  bool hopper = false;    // whether kernels with Hopper's own instructions can run
  int clusters_of_4 = 0;  // clusters of linear_residual_norm.cu that run at one time
  int64_t sums = 0;       // floats that LateSums has room for
  size_t scratch_bytes = 0;
};

// The ops must have something to compute.
ProductKernel kernel_of(const op::Linear& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearBackwardInput& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearBackwardWeights& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearResidualNorm& p, const Chip& chip);
ProductKernel kernel_of(const op::ProjectedLoss& p, const Chip& chip);

}  // namespace tandem::backend::cuda
