// What the emulated GPU says of itself: the compute capability of the program's PTX, with 8.0 the shared memory of the
// smallest GPUs from there on, and as many multiprocessors as EMULATED_GPU_PROCESSORS says.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "core/error.h"
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
  properties->major = tandem::emulated::architecture() / 10;
  properties->minor = tandem::emulated::architecture() % 10;
  properties->totalGlobalMem = tandem::emulated::DeviceMemory::instance().total();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  tandem::require(attribute == cudaDevAttrMultiProcessorCount, "the emulated GPU is asked for attribute {}",
                  static_cast<int>(attribute));
  const char* const processors = std::getenv("EMULATED_GPU_PROCESSORS");
  *value = processors == nullptr ? 20 : std::atoi(processors);  // few, so that blocks take several turns
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
