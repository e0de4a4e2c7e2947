// Copies and fills, in ranges that are the GPU's.
#include <cuda_runtime.h>

#include <cstring>

#include "emulated_gpu/runtime/device_memory.h"
#include "emulated_gpu/runtime/queue.h"

namespace emulated {

namespace {

// Rows of `width` bytes, `pitch` apart.
struct Area {
  void* place;
  size_t pitch, width, rows;

  std::byte* row(size_t r) const { return static_cast<std::byte*>(place) + r * pitch; }
};

void require_on_gpu(const Area& area, const char* what) {
  DeviceMemory::instance().require_inside(area.place, area.pitch, area.width, area.rows, what);
}

void copy(const Area& to, const Area& from, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToHost) {
    require_on_gpu(to, "a copy writes");
  }
  if (kind != cudaMemcpyHostToDevice) {
    require_on_gpu(from, "a copy reads");
  }
  give(stream, [=] {
    for (size_t r = 0; r < to.rows; ++r) {
      std::memmove(to.row(r), from.row(r), to.width);
    }
  });
}

void fill(const Area& area, int value, cudaStream_t stream) {
  require_on_gpu(area, "a fill writes");
  give(stream, [=] {
    for (size_t r = 0; r < area.rows; ++r) {
      std::memset(area.row(r), value, area.width);
    }
  });
}

}  // namespace
}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaMalloc(void** place, size_t bytes) {
  if (is_recording()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  *place = DeviceMemory::instance().take(bytes, false);
  return *place == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* place) {
  DeviceMemory::instance().give(place);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** place, size_t bytes) {
  if (is_recording()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  *place = DeviceMemory::instance().take(bytes, true);
  return *place == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* place) { return cudaFree(place); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = DeviceMemory::instance().free();
  *total = DeviceMemory::instance().total();
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  copy({to, 0, bytes, 1}, {const_cast<void*>(from), 0, bytes, 1}, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  copy({to, to_pitch, width, rows}, {const_cast<void*>(from), from_pitch, width, rows}, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* place, int value, size_t bytes, cudaStream_t stream) {
  fill({place, 0, bytes, 1}, value, stream);
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* place, size_t pitch, int value, size_t width, size_t rows, cudaStream_t stream) {
  fill({place, pitch, width, rows}, value, stream);
  return cudaSuccess;
}
}
