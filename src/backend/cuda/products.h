// Which kernel computes a product. It is decided here alone, from the op's shape, epilogue and addresses (which are not
// followed) and from what the GPU is; the ops ask and do it. Constants and their measurements: products.cu.
#pragma once

#include "backend/backend.h"

namespace tandem::backend::cuda {

enum class ProductKernel : uint8_t {
  cublas,             // cuBLASLt (gemm.h) does it all, with bias and relu in its epilogue
  cublas_and_passes,  // what it has no epilogue for is done by passes over its result
  fused,              // fused_product.cu
  norm_of_2,          // linear_residual_norm.cu: a row's columns in clusters of two blocks, or of four
  norm_of_4,
  pair_64,  // linear_backward_weights.cu, two products at once: a cluster of two blocks has so many rows of a dw
  pair_128,
  pair_256,
};

// What the decision has to know of a GPU.
struct Chip {
  int processors = 0;     // streaming multiprocessors
  bool hopper = false;    // whether kernels with Hopper's own instructions can run
  int clusters_of_4 = 0;  // of linear_residual_norm.cu, that run at one time
  int64_t sums = 0;       // floats that LateSums has room for
  size_t scratch_bytes = 0;
};

// Of ops that have something to compute.
ProductKernel kernel_of(const op::Linear& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearBackwardInput& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearBackwardWeights& p, const Chip& chip);
ProductKernel kernel_of(const op::LinearResidualNorm& p, const Chip& chip);
ProductKernel kernel_of(const op::ProjectedLoss& p, const Chip& chip);

}  // namespace tandem::backend::cuda
