// A stream besides the compute stream: its work starts after all earlier work of the compute stream, which can be made
// to wait for it. Both dependencies are recorded if the compute stream is being recorded.
#pragma once

#include <cuda_runtime.h>

#include "core/error.h"
#include "dist/communicator.h"
#include "tensor/stream.h"

namespace tandem::dist {

inline void check_cuda(cudaError_t status, const char* what) {
  require(status == cudaSuccess, "{} failed: {}", what, cudaGetErrorString(status));
}

class SideStream {
 public:
  explicit SideStream(DeviceStream compute) : compute_(static_cast<cudaStream_t>(compute.handle)) {
    check_cuda(cudaSetDevice(compute.device), "choosing the GPU");
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading stream priorities");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "creating a stream");
    check_cuda(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), "creating an event");
    check_cuda(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), "creating an event");
  }
  ~SideStream() {
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(join_);
    cudaEventDestroy(fork_);
    cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Returns the stream for the next piece of work.
  cudaStream_t begin() {
    check_cuda(cudaEventRecord(fork_, compute_), "recording an event");
    check_cuda(cudaStreamWaitEvent(stream_, fork_, 0), "ordering two streams");
    joined_ = false;
    return stream_;
  }
  // Waiting for the handle makes the compute stream wait for everything that this one has been given.
  Handle end() {
    return Handle([this] {
      if (!joined_) {
        check_cuda(cudaEventRecord(join_, stream_), "recording an event");
        check_cuda(cudaStreamWaitEvent(compute_, join_, 0), "ordering two streams");
        joined_ = true;
      }
    });
  }

 private:
  cudaStream_t compute_, stream_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  bool joined_ = true;
};

}  // namespace tandem::dist
