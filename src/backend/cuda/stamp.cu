#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace tandem::backend {

namespace {

__global__ void stamp_kernel(uint64_t* time) {
  cuda::await_previous();
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  *time = now;
}

}  // namespace

cudaError_t CudaBackend::look_for_code(cudaFuncAttributes& found) {
  return cudaFuncGetAttributes(&found, stamp_kernel);  // all kernels are compiled for the same GPUs
}

void CudaBackend::stamp(uint64_t* time) { cuda::launch("stamp", stamp_kernel, {1, 1, 0, stream_}, time); }

}  // namespace tandem::backend
