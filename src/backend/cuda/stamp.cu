#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace tandem {

namespace {

__global__ void stamp_kernel(uint64_t* time) {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  *time = now;
}

}  // namespace

void CudaBackend::stamp(uint64_t* time) {
  stamp_kernel<<<1, 1, 0, stream_>>>(time);
  check_launch("stamp");
}

}  // namespace tandem
