#include "backend/cuda/check.h"

#include <algorithm>

#include "backend/backend.h"

namespace tandem::backend {

namespace {

// After these errors every call of the process fails.
constexpr cudaError_t kFinal[] = {cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable,
                                  cudaErrorContained,           cudaErrorIllegalAddress,
                                  cudaErrorLaunchTimeout,       cudaErrorHardwareStackError,
                                  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
                                  cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
                                  cudaErrorLaunchFailure,       cudaErrorExternalDevice,
                                  cudaErrorMpsRpcFailure,       cudaErrorUnknown};

}  // namespace

void fail_cuda(cudaError_t status, const char* what) {
  if (status == cudaErrorMemoryAllocation) {  // the driver also allocates when a kernel is first used
    cudaGetLastError();                       // the next call must not report it again
    throw OutOfMemory(fmt::format("out of GPU memory at {}; a smaller batch needs less", what));
  }
  const bool is_final = std::ranges::find(kFinal, status) != std::end(kFinal);
  fail("the GPU {} at {}: {} ({}){}", is_final ? "was lost" : "failed", what, cudaGetErrorString(status),
       cudaGetErrorName(status),
       is_final ? "; the machine's log may say why (dmesg, a line with Xid), and checkpoints are as they were" : "");
}

void fail_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfMemory(fmt::format("out of GPU memory in cuBLASLt at {}; a smaller batch needs less", what));
  }
  fail("cuBLASLt failed at {}: {}", what, cublasLtGetStatusString(status));
}

}  // namespace tandem::backend
