// What the emulated GPU says of itself: the compute capability of the program's PTX. With 9.0 it has as many
// multiprocessors as an H200, so that ops go the same ways; with 8.0 few, so that blocks take several turns, and the
// shared memory of the smallest GPUs from there on. EMULATED_GPU_PROCESSORS says another number.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "emulated_gpu/error.h"
#include "emulated_gpu/runtime/device_memory.h"
#include "emulated_gpu/runtime/kernels.h"

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");  // by which the tests know it
  properties->major = emulated::architecture() / 10;
  properties->minor = emulated::architecture() % 10;
  properties->totalGlobalMem = emulated::DeviceMemory::instance().total();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  emulated::require(attribute == cudaDevAttrMultiProcessorCount, "the emulated GPU is asked for attribute {}",
                    static_cast<int>(attribute));
  const char* const processors = std::getenv("EMULATED_GPU_PROCESSORS");
  *value = processors != nullptr ? std::atoi(processors) : emulated::architecture() == 90 ? 132 : 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int, int) {
  std::strcpy(id, "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    default:
      return "an error of the emulated GPU";
  }
}
}
