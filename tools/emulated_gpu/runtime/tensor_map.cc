// The driver's function that describes a matrix to the copy engine, found as CUDA's runtime finds it.
#include "emulated_gpu/ptx/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <string_view>

namespace emulated {

namespace {

// What a driver refuses, and what the emulated copy engine does not know.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion /*promotion*/,
                CUtensorMapFloatOOBfill fill) {
  constexpr cuuint64_t kMostSize = cuuint64_t{1} << 32, kMostStride = cuuint64_t{1} << 40;
  if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank != 2 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0 || reinterpret_cast<uintptr_t>(map) % 64 != 0 || sizes[0] == 0 ||
      sizes[1] == 0 || sizes[0] > kMostSize || sizes[1] > kMostSize || strides[0] % 16 != 0 ||
      strides[0] >= kMostStride || box[0] != TensorMap::kCols || box[1] == 0 || box[1] > 256 || steps[0] != 1 ||
      steps[1] != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TensorMap made;
  made.data = reinterpret_cast<uint64_t>(data);
  made.cols = static_cast<int64_t>(sizes[0]);
  made.rows = static_cast<int64_t>(sizes[1]);
  made.stride = static_cast<int64_t>(strides[0]);
  made.box_rows = box[1];
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace emulated

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *entry = known ? reinterpret_cast<void*>(emulated::encode) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
