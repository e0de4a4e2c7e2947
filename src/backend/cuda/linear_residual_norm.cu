#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/product_norm.h"

namespace tandem {

void CudaBackend::linear_residual_norm(const LinearResidualNorm& end) {
  if (cuda::product_norm_possible(end, processors_)) {
    cuda::product_norm(end, processors_, stream_);
  } else {
    Backend::linear_residual_norm(end);
  }
}

}  // namespace tandem
