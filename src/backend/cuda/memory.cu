#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"
#include "core/human.h"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class To, class From>
__global__ void convert_kernel(To* to, int64_t to_stride, const From* from, int64_t from_stride, int64_t rows,
                               int64_t cols) {
  await_previous();
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * cols;
       i += int64_t{gridDim.x} * blockDim.x) {
    to[i / cols * to_stride + i % cols] = from_float<To>(to_float(from[i / cols * from_stride + i % cols]));
  }
}

template <class To, class From>
void convert(const View& to, const ConstView& from, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int64_t blocks = std::min<int64_t>(divide_up(to.size(), kThreads), 1 << 16);
  launch("convert_kernel", convert_kernel<To, From>, {blocks, kThreads, 0, stream}, data<To>(to), to.stride,
         data<From>(from), from.stride, to.rows, to.cols);
}

__global__ void stamp_kernel(uint64_t* time) {
  await_previous();
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  *time = now;
}

}  // namespace

cudaError_t CudaBackend::look_for_code(cudaFuncAttributes& found) {
  return cudaFuncGetAttributes(&found, stamp_kernel);  // all kernels are compiled for the same GPUs
}

void CudaBackend::stamp(uint64_t* time) { launch("stamp", stamp_kernel, {1, 1, 0, stream_}, time); }

Buffer CudaBackend::allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, std::max<size_t>(bytes, 256));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which is reported here
    const MemorySizes sizes = memory_sizes();
    throw OutOfMemory(fmt::format("out of GPU memory: {} wanted, {} of {} free; nvidia-smi shows who else has some",
                                  human_bytes(static_cast<double>(bytes)), human_bytes(static_cast<double>(sizes.free)),
                                  human_bytes(static_cast<double>(sizes.total))));
  }
  check(status, "allocating memory");
  return Buffer(memory, bytes, Memory::device, [](void* p) { cudaFree(p); });
}

void CudaBackend::upload(const View& to, const void* from) {
  if (to.bytes() > 0) {
    check(cudaMemcpyAsync(to.data, from, to.bytes(), cudaMemcpyHostToDevice, stream_), "copying to the GPU");
  }
}

void CudaBackend::download(void* to, const ConstView& from) {
  if (from.bytes() > 0) {
    check(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, stream_), "copying from the GPU");
  }
  wait();
}

void op::Copy::run(CudaBackend& gpu) const {
  if (to.size() == 0) {
    return;
  }
  if (to.dtype == from.dtype && to.contiguous() && from.contiguous()) {
    check(cudaMemcpyAsync(to.data, from.data, to.bytes(), cudaMemcpyDeviceToDevice, gpu.queue()), "copying on the GPU");
  } else if (to.dtype == from.dtype) {
    const size_t width = size_of(to.dtype);
    const auto pitch = [width](const ConstView& view) {
      return static_cast<size_t>(view.rows > 1 ? view.stride : view.cols) * width;
    };
    check(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from), static_cast<size_t>(to.cols) * width,
                            static_cast<size_t>(to.rows), cudaMemcpyDeviceToDevice, gpu.queue()),
          "copying on the GPU");
  } else if (to.dtype == DType::bf16 && from.dtype == DType::f32) {
    convert<Bf16, float>(to, from, gpu.queue());
  } else if (to.dtype == DType::f32 && from.dtype == DType::bf16) {
    convert<float, Bf16>(to, from, gpu.queue());
  } else {
    fail("the GPU cannot convert {} to {}", name_of(from.dtype), name_of(to.dtype));
  }
}

void op::FillZero::run(CudaBackend& gpu) const {
  if (to.size() == 0) {
    return;
  }
  const size_t width = size_of(to.dtype);
  if (to.contiguous()) {
    check(cudaMemsetAsync(to.data, 0, to.bytes(), gpu.queue()), "clearing memory");
  } else {
    check(cudaMemset2DAsync(to.data, static_cast<size_t>(to.stride) * width, 0, static_cast<size_t>(to.cols) * width,
                            static_cast<size_t>(to.rows), gpu.queue()),
          "clearing memory");
  }
}

}  // namespace tandem::backend
