#include "backend/cuda/cuda_backend.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda_device.h"
#include "core/log.h"

namespace tandem::backend {

namespace {

constexpr int kOldest = 80;                         // compute capability 8.0: bf16 tensor cores
constexpr size_t kScratchBytes = size_t{48} << 20;  // transformer-big's loss takes 38 MiB
constexpr size_t kLateSumsBytes = size_t{32} << 20;

std::string problem_of(int device) {
  cudaDeviceProp properties{};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) {
    return fmt::format("GPU {} cannot be used: {}", device, cudaGetErrorString(status));
  }
  if (properties.major * 10 + properties.minor < kOldest) {
    return fmt::format("GPU {} ({}, compute capability {}.{}) is too old: 8.0 or later is needed for bf16", device,
                       properties.name, properties.major, properties.minor);
  }
  return {};
}

// These mean that the program has no code that runs on a GPU, neither compiled for it nor by its driver.
constexpr cudaError_t kNoCode[] = {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction,
                                   cudaErrorInvalidKernelImage,     cudaErrorInvalidPtx,
                                   cudaErrorUnsupportedPtxVersion,  cudaErrorJitCompilerNotFound,
                                   cudaErrorJitCompilationDisabled};

// The number of GPUs, or why there is none.
std::string count_devices(int& count) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no NVIDIA driver was found";
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is too old: it knows CUDA {}.{} and this tandem needs {}.{}", driver / 1000,
                       driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (status != cudaSuccess || count == 0) {
    return fmt::format("no GPU can be used: {}",
                       status == cudaSuccess ? "the driver shows none" : cudaGetErrorString(status));
  }
  return {};
}

// One entry per GPU, empty if it can be used.
std::vector<std::string> problems_by_gpu() {
  int count = 0;
  std::vector<std::string> problems;
  const bool some = count_devices(count).empty();
  for (int device = 0; some && device < count; ++device) {
    problems.push_back(problem_of(device));
  }
  return problems;
}

}  // namespace

std::vector<int> usable_gpus() {
  const std::vector<std::string> problems = problems_by_gpu();
  std::vector<int> usable;
  for (size_t device = 0; device < problems.size(); ++device) {
    if (problems[device].empty()) {
      usable.push_back(static_cast<int>(device));
    }
  }
  return usable;
}

std::vector<std::string> gpu_problems() {
  std::vector<std::string> problems = problems_by_gpu();
  std::erase(problems, "");
  return problems;
}

std::string why_no_cuda() {
  int count = 0;
  const std::string problem = count_devices(count);
  return !problem.empty() ? problem : usable_gpus().empty() ? problem_of(0) : "";
}

std::string gpu_bus_id(int device) {
  char id[32] = {};
  check(cudaDeviceGetPCIBusId(id, sizeof id, device), "reading the GPU's PCI bus id");
  return id;
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  int count = 0;
  std::string problem = count_devices(count);
  if (problem.empty() && device >= count) {
    problem = fmt::format("there is no GPU {}: this machine has {}, numbered from 0", device, count);
  }
  if (problem.empty()) {
    problem = problem_of(device);
  }
  require(problem.empty(), "{}", problem);
  return std::make_unique<CudaBackend>(device);
}

int gpu_of_this_thread() {
  int device = -1;
  check(cudaGetDevice(&device), "asking for this thread's GPU");
  return device;
}

void use_gpu(int device) { check(cudaSetDevice(device), "choosing the GPU"); }

CudaBackend::CudaBackend(int device) : device_(device) {
  use_gpu(device);
  require_code();
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device), "reading the GPU's size");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  check(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking), "creating a stream");
  scratch_ = allocate(kScratchBytes);
  late_sums_ = std::make_unique<cuda::LateSums>(allocate(kLateSumsBytes), stream_);
  gemm_ = std::make_unique<cuda::Gemm>(*this, stream_);
}

void CudaBackend::require_code() const {
  cudaFuncAttributes found{};
  const cudaError_t status = look_for_code(found);
  if (std::ranges::find(kNoCode, status) != std::end(kNoCode)) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), "reading the GPU's name");
    const int capability = properties.major * 10 + properties.minor;
    fail(
        "this tandem has no code for GPU {} ({}, compute capability {}.{}): {}; build it with CUDAARCHS={}{} make "
        "build, "
        "or use device=cpu",
        device_, properties.name, properties.major, properties.minor, cudaGetErrorString(status), capability,
        capability == 90 ? "a" : "");
  }
  check(status, "looking for kernels");
  if (found.binaryVersion != found.ptxVersion) {
    log::info("the driver compiles for this GPU, which takes a while unless its cache has the result");
  }
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(copy_stream_);
  cudaStreamSynchronize(stream_);
  gemm_.reset();
  cudaStreamDestroy(copy_stream_);
  cudaStreamDestroy(stream_);
}

std::string CudaBackend::description() const {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_), "reading the GPU's name");
  return fmt::format("{} (GPU {}, {:.0f} GB, compute capability {}.{})", properties.name, device_,
                     static_cast<double>(properties.totalGlobalMem) / 1e9, properties.major, properties.minor);
}

DeviceTraits CudaBackend::traits() const {
  return {.replays = true,
          .f32 = false,
          .bf16 = true,
          .loss_rows = 12544,
          .spare_logit_rows = cuda::kSpareRows,
          .decode_sentences = 512,
          // The host queries cuBLASLt for an algorithm for every new number of rows, which takes longer than a few more
          // rows do.
          .decode_rows_step = 64,
          .widest = cuda::kWidestNorm,
          .widest_head = cuda::kWidestHead,
          .row_group = cuda::kPieceRows,
          .most_groups = 65535,  // blocks of a grid's second dimension, in linear.cu
          // The parts that EmbedBackward adds up, two for each group, fit the scratch memory.
          .most_group_columns = static_cast<int64_t>(kScratchBytes / sizeof(float) / 2)};
}

Backend::MemorySizes CudaBackend::memory_sizes() const {
  MemorySizes sizes;
  check(cudaMemGetInfo(&sizes.free, &sizes.total), "asking for the free memory");
  sizes.own = scratch_.bytes() + kLateSumsBytes + cuda::Gemm::kWorkspaceBytes;
  return sizes;
}

void CudaBackend::wait() { check(cudaStreamSynchronize(stream_), "waiting for the work that was given"); }

}  // namespace tandem::backend
