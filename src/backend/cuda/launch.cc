#include "backend/cuda/launch.cuh"

#include <mutex>
#include <unordered_map>

namespace tandem::backend::cuda {

const cudaFuncAttributes& attributes_of(const void* kernel) {
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

}  // namespace tandem::backend::cuda
