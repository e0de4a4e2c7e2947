// Launches that overlap the end of the previous kernel: on Hopper a kernel's blocks may be resident, and have done what
// comes before await_previous, while the last blocks of that one still run (programmatic dependent launch).
#pragma once

#include <cuda_runtime.h>

#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "backend/cuda/check.h"

namespace tandem::backend::cuda {

// Called at the head of every kernel, in all threads, before device memory is read or written: waits until all work
// given before this kernel is done and its results are visible. Before it waits, it lets the next kernel launch.
__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Queried from the driver once for each kernel, since a process computes on one GPU.
inline const cudaFuncAttributes& attributes_of(const void* kernel) {
  static std::mutex mutex;
  static std::unordered_map<const void*, cudaFuncAttributes> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(kernel); found != known.end()) {
    return found->second;
  }
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "reading a kernel's attributes");
  return known.emplace(kernel, attributes).first->second;
}

struct Grid : dim3 {
  Grid(int64_t x, int64_t y = 1, int64_t z = 1)
      : dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)) {}
};

// The stream and the size of a launch.
struct Launch {
  Grid blocks;
  dim3 threads;
  size_t shared = 0;  // bytes of dynamic shared memory
  cudaStream_t stream = nullptr;
  unsigned cluster = 1;  // blocks per cluster; more than one only on Hopper and later
};

// Launches a kernel that begins with await_previous. A launch that is rejected fails with `name`; an error inside the
// kernel shows at the next wait.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), const Launch& size,
            const std::type_identity_t<Parameters>&... arguments) {
  if (size.shared > 0) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(size.shared)),
          "asking for shared memory");
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  // Code for GPUs before Hopper does not wait in await_previous, so its launches must not overlap.
  if (attributes_of(reinterpret_cast<const void*>(kernel)).ptxVersion >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (size.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {size.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = size.blocks;
  config.blockDim = size.threads;
  config.dynamicSmemBytes = size.shared;
  config.stream = size.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace tandem::backend::cuda
