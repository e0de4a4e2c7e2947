// A CUDA runtime without a GPU, linked into a tandem of the tests: memory is the host's, copies copy, kernels and
// graphs do nothing, and a chosen call fails as it does when a GPU is lost. Set by the environment:
//   FAKE_GPU_DRIVER      version of CUDA that the driver knows, 1000 * major + 10 * minor; 0 = no driver
//   FAKE_GPU_COUNT       GPUs, default 1
//   FAKE_GPU_CAPABILITY  10 * major + minor of each GPU, "75,90"; the last one is that of all others, default 90; other
//                        than 90 compile from PTX of 8.0
//   FAKE_GPU_MEMORY      bytes of each GPU, likewise, default 512 MiB
//   FAKE_GPU_KERNEL      bytes of that memory that a kernel takes when it is launched first, default 0
//   FAKE_GPU_BROKEN      error of every call that asks for GPUs
//   FAKE_GPU_NO_CODE     if set, the program has no code for this GPU
//   FAKE_GPU_FAILS       this call and all later ones fail, counted from 1; those that free or ask for errors are not
//                        counted
//   FAKE_GPU_ERROR       with this error, default 719 (launch failure)
//   FAKE_GPU_FAILS_IN    only calls of the function with this name count
//   FAKE_GPU_TRACE       a file that gets the name of every counted call, a line each
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace {

long setting(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

// Of one GPU, from a list; those behind its end are as the last one.
long setting_of(int device, const char* name, long otherwise) {
  const char* text = std::getenv(name);
  for (int i = 0; text != nullptr && *text != '\0' && i <= device; ++i) {
    char* end = nullptr;
    otherwise = std::strtol(text, &end, 10);
    text = *end == ',' ? end + 1 : end;
  }
  return otherwise;
}

long capability_of(int device) { return setting_of(device, "FAKE_GPU_CAPABILITY", 90); }

std::atomic<int> chosen = 0;  // GPU

cudaError_t broken() { return static_cast<cudaError_t>(setting("FAKE_GPU_BROKEN", cudaSuccess)); }

// What a counted call returns.
cudaError_t call(std::string_view name) {
  static const long fails = setting("FAKE_GPU_FAILS", 0);
  static const auto error = static_cast<cudaError_t>(setting("FAKE_GPU_ERROR", cudaErrorLaunchFailure));
  static const char* const fails_in = std::getenv("FAKE_GPU_FAILS_IN");
  static FILE* const trace =
      std::getenv("FAKE_GPU_TRACE") == nullptr ? nullptr : std::fopen(std::getenv("FAKE_GPU_TRACE"), "w");
  static std::atomic<long> calls = 0;
  if (trace != nullptr) {
    std::fprintf(trace, "%.*s\n", static_cast<int>(name.size()), name.data());
    std::fflush(trace);
  }
  if (fails_in != nullptr && name != fails_in) {
    return fails > 0 && calls >= fails ? error : cudaSuccess;
  }
  return ++calls >= fails && fails > 0 ? error : cudaSuccess;
}

// Between the beginning and the end of a recording, its thread may neither wait nor allocate.
thread_local bool recording = false;

cudaError_t call_outside(std::string_view name) { return recording ? cudaErrorStreamCaptureUnsupported : call(name); }

class Memory {
 public:
  size_t total() const { return static_cast<size_t>(setting_of(chosen, "FAKE_GPU_MEMORY", 1L << 29)); }
  size_t free() const { return total() - used_; }
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > free()) {
      return nullptr;
    }
    void* place = std::malloc(bytes);
    std::fill_n(static_cast<int32_t*>(place), bytes / sizeof(int32_t), 1);
    sizes_[place] = bytes;
    used_ += bytes;
    return place;
  }
  // For the driver itself, for good.
  bool keep(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const bool fits = bytes <= free();
    used_ += fits ? bytes : 0;
    return fits;
  }
  void give(void* place) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(place);
    if (found != sizes_.end()) {
      used_ -= found->second;
      sizes_.erase(found);
      std::free(place);
    }
  }

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
  size_t used_ = 0;
};

Memory& memory() {
  static Memory memory;
  return memory;
}

// Names by address.
std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> kernels;
  return kernels;
}

// An object of which nothing is known but that it is one.
template <class Handle>
cudaError_t make(Handle* handle, const char* name) {
  static std::atomic<uintptr_t> made = 0;
  *handle = reinterpret_cast<Handle>(++made);
  return call(name);
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                      const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  std::memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

}  // namespace

bool is_recording() { return recording; }

extern "C" {

// ---- the driver and its GPUs
cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(setting("FAKE_GPU_DRIVER", CUDART_VERSION));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(setting("FAKE_GPU_COUNT", 1));
  if (setting("FAKE_GPU_DRIVER", CUDART_VERSION) < CUDART_VERSION / 1000 * 1000) {
    return cudaErrorInsufficientDriver;
  }
  return broken() == cudaSuccess && *count == 0 ? cudaErrorNoDevice : broken();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const long capability = capability_of(device);
  *properties = {};
  std::strcpy(properties->name, "Fake GPU");
  properties->major = static_cast<int>(capability / 10);
  properties->minor = static_cast<int>(capability % 10);
  properties->totalGlobalMem = memory().total();
  return broken();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return call("cudaDeviceGetAttribute");
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int, int) {
  std::strcpy(id, "0000:18:00.0");
  return call("cudaDeviceGetPCIBusId");
}
cudaError_t cudaSetDevice(int device) {
  chosen = device;
  return call("cudaSetDevice");
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen;
  return call("cudaGetDevice");
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    default:
      return "cudaErrorFake";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "unspecified launch failure" : "the fake GPU's error";
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *entry = reinterpret_cast<void*>(&encode_tiled);
  *found = cudaDriverEntryPointSuccess;
  return call("cudaGetDriverEntryPointByVersion");
}

// ---- memory
cudaError_t cudaMalloc(void** place, size_t bytes) {
  *place = memory().take(bytes);
  const cudaError_t status = call_outside("cudaMalloc");
  return status == cudaSuccess && *place == nullptr ? cudaErrorMemoryAllocation : status;
}
cudaError_t cudaFree(void* place) {
  memory().give(place);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** place, size_t bytes) {
  const cudaError_t status = call_outside("cudaMallocHost");
  *place = status == cudaSuccess ? std::calloc(bytes, 1) : nullptr;
  return status;
}
cudaError_t cudaFreeHost(void* place) {
  std::free(place);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = memory().free();
  *total = memory().total();
  return call("cudaMemGetInfo");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memmove(to, from, bytes);
  return call("cudaMemcpyAsync");
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind, cudaStream_t) {
  for (size_t row = 0; row < rows; ++row) {
    std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  }
  return call("cudaMemcpy2DAsync");
}
cudaError_t cudaMemsetAsync(void* place, int value, size_t bytes, cudaStream_t) {
  std::memset(place, value, bytes);
  return call("cudaMemsetAsync");
}
cudaError_t cudaMemset2DAsync(void* place, size_t pitch, int value, size_t width, size_t rows, cudaStream_t) {
  for (size_t row = 0; row < rows; ++row) {
    std::memset(static_cast<char*>(place) + row * pitch, value, width);
  }
  return call("cudaMemset2DAsync");
}

// ---- streams, events and graphs: what is recorded is done at once, and never again
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make(stream, "cudaStreamCreateWithFlags");
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return make(stream, "cudaStreamCreateWithPriority");
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return call("cudaDeviceGetStreamPriorityRange");
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return call_outside("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return call("cudaStreamWaitEvent"); }
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return call("cudaLaunchHostFunc");
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make(event, "cudaEventCreate"); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make(event, "cudaEventCreateWithFlags"); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return call("cudaEventRecord"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return call_outside("cudaEventSynchronize"); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return call("cudaEventElapsedTime");
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  recording = true;
  return call("cudaStreamBeginCapture");
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  recording = false;
  return make(graph, "cudaStreamEndCapture");
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  return make(executable, "cudaGraphInstantiate");
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return call("cudaGraphLaunch"); }

// ---- kernels
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const long capability = capability_of(chosen);
  *attributes = {};
  attributes->binaryVersion = static_cast<int>(capability);
  attributes->ptxVersion = capability == 90 ? 90 : 80;
  attributes->sharedSizeBytes = 1024;  // the driver's own
  if (capability == 90 && kernels()[kernel].find("empty_kernel") == std::string::npos) {
    attributes->sharedSizeBytes += 64;  // Hopper's kernels have their bodies there alone
  }
  return std::getenv("FAKE_GPU_NO_CODE") != nullptr ? cudaErrorNoKernelImageForDevice : call("cudaFuncGetAttributes");
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return call("cudaFuncSetAttribute"); }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  static std::set<const void*> loaded;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!loaded.contains(kernel) && !memory().keep(static_cast<size_t>(setting("FAKE_GPU_KERNEL", 0)))) {
    return cudaErrorMemoryAllocation;
  }
  loaded.insert(kernel);
  return call("cudaLaunchKernelExC");
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = 66;
  return call("cudaOccupancyMaxActiveClusters");
}

// ---- what nvcc's own code calls
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels()[kernel] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  *kernel = nullptr;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return call("cudaLaunchKernel");
}
}
