#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/hopper_products.h"

namespace tandem::backend {

void op::LinearResidualNorm::run(CudaBackend& gpu) const {
  const cuda::ProductKernel kernel = cuda::kernel_of(*this, gpu.chip());
  if (kernel == cuda::ProductKernel::cublas_and_passes) {
    run_in_parts(gpu);
  } else {
    cuda::product_norm(*this, kernel, gpu.processors(), gpu.queue());
  }
}

}  // namespace tandem::backend
