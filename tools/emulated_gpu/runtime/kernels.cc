// Kernels: found by the names that nvcc's code registers, launched with a copy of their arguments.
#include "emulated_gpu/runtime/kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/grid.h"
#include "emulated_gpu/runtime/fat_binary.h"
#include "emulated_gpu/runtime/queue.h"

namespace emulated {

namespace {

constexpr uint32_t kLargestCluster = 8;
constexpr size_t kUsualShared = 48 << 10;  // that a block gets, dynamic memory included
// That it gets when it asks: of GPUs of 8.6, 8.9 and 12.0, and of those of 9.0.
size_t largest_shared() { return (architecture() == 80 ? size_t{99} : size_t{227}) << 10; }

struct Module {
  const void* registered = nullptr;
  std::shared_ptr<const ModuleText> text;
};

struct Kernel {
  Module* module = nullptr;
  std::string name;
  std::optional<Program> program;
  size_t largest_shared = kUsualShared;
};

class Kernels {
 public:
  static Kernels& instance() {
    static auto* const kernels = new Kernels;
    return *kernels;
  }

  Module* add_module(const void* registered) {
    modules_.push_back(std::make_unique<Module>(Module{registered, nullptr}));
    return modules_.back().get();
  }
  void add_kernel(Module* module, const void* address, const char* name) {
    kernels_[address].module = module;
    kernels_[address].name = name;
  }

  const void* first_module() const {
    require(!modules_.empty(), "the program has no code for a GPU");
    return modules_[0]->registered;
  }

  size_t decode_all() {
    for (const auto& [address, kernel] : kernels_) {
      find(address);
    }
    return kernels_.size();
  }

  // Decoded when it is first asked for.
  Kernel& find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(address);
    require(found != kernels_.end(), "a kernel is asked for that was not registered");
    Kernel& kernel = found->second;
    if (!kernel.program) {
      if (kernel.module->text == nullptr) {
        kernel.module->text = std::make_shared<const ModuleText>(ptx_of(kernel.module->registered).text);
      }
      kernel.program = decode(kernel.module->text, kernel.name);
    }
    return kernel;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<const void*, Kernel> kernels_;
};

Size3 size_of(dim3 size) { return {size.x, size.y, size.z}; }

}  // namespace

int architecture() {
  static const int first = ptx_of(Kernels::instance().first_module()).architecture;
  return first;
}

size_t decode_all_kernels() { return Kernels::instance().decode_all(); }

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* address) {
  const Kernel& kernel = Kernels::instance().find(address);
  *attributes = {};
  attributes->binaryVersion = attributes->ptxVersion = architecture();
  attributes->sharedSizeBytes = kDriversSharedMemory + kernel.program->static_shared;
  attributes->localSizeBytes = kernel.program->local_bytes;
  attributes->maxThreadsPerBlock = static_cast<int>(kernel.program->max_threads);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* address, cudaFuncAttribute attribute, int value) {
  Kernel& kernel = Kernels::instance().find(address);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      kernel.program->static_shared + static_cast<size_t>(value) > largest_shared()) {
    return cudaErrorInvalidValue;
  }
  kernel.largest_shared = std::max(kUsualShared, kernel.program->static_shared + static_cast<size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* address, void** arguments) {
  const Kernel& kernel = Kernels::instance().find(address);
  const Program& program = *kernel.program;
  const Size3 grid = size_of(config->gridDim), block = size_of(config->blockDim);
  if (grid.count() == 0 || block.count() == 0 || block.count() > program.max_threads || grid.y > 65535 ||
      grid.z > 65535 || (architecture() == 80 && config->numAttrs > 0)) {  // attributes are Hopper's
    return cudaErrorInvalidConfiguration;
  }
  uint32_t cluster = 1;
  bool overlaps = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      cluster = attribute.val.clusterDim.x;
    } else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      overlaps = attribute.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  if (cluster == 0 || cluster > kLargestCluster || grid.x % cluster != 0) {
    return cudaErrorInvalidConfiguration;
  }
  const size_t shared = config->dynamicSmemBytes;
  if (program.static_shared + shared > kernel.largest_shared) {
    return cudaErrorInvalidValue;
  }
  std::vector<std::byte> copied(program.parameter_bytes);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    std::memcpy(copied.data() + program.parameters[i].offset, arguments[i], program.parameters[i].bytes);
  }
  give(config->stream, [&program, grid, block, shared, cluster, overlaps, copied = std::move(copied)] {
    run_grid({program, grid, block, copied, cluster, overlaps}, shared);
  });
  return cudaSuccess;
}

// As if a multiprocessor had room for one block.
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  int processors = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  *clusters = processors;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      *clusters = processors / static_cast<int>(config->attrs[i].val.clusterDim.x);
    }
  }
  return architecture() == 80 ? cudaErrorNotSupported : cudaSuccess;
}

// ---- what nvcc's own code calls
void** __cudaRegisterFatBinary(void* registered) {
  return reinterpret_cast<void**>(Kernels::instance().add_module(registered));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** module, const char* address, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  Kernels::instance().add_kernel(reinterpret_cast<Module*>(module), address, name);
}
void __cudaRegisterVar(void**, char*, char*, const char* name, int, size_t, int, int) {
  emulated::fail("the emulated GPU knows no variables outside of kernels, but {} is one", name);
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  emulated::fail("the emulated GPU knows only launches by cudaLaunchKernelEx");
}
}
