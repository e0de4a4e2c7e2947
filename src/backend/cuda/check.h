// Every call of the CUDA libraries and every launch is checked; a failure becomes an Error, or OutOfMemory if that is
// the reason.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "core/error.h"

namespace tandem::backend {

[[noreturn]] void fail_cuda(cudaError_t status, const char* what);
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* what);

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    fail_cuda(status, what);
  }
}

inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail_cublas(status, what);
  }
}

}  // namespace tandem::backend
