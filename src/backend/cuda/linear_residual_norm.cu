#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/product_norm.h"

namespace tandem::backend {

void op::LinearResidualNorm::run(CudaBackend& gpu) const {
  if (cuda::product_norm_possible(*this, gpu.processors())) {
    cuda::product_norm(*this, gpu.processors(), gpu.queue());
  } else {
    run_in_parts(gpu);
  }
}

}  // namespace tandem::backend
