// Recorded work is a CUDA graph; data travels on a stream of its own through pinned memory.
#include <array>
#include <cstring>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace tandem::backend {

namespace {

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  void order(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "ordering two streams"); }
  void wait() const { check(cudaEventSynchronize(event_), "waiting for the GPU"); }

 private:
  cudaEvent_t event_ = nullptr;
};

Buffer allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "allocating pinned host memory");
  return Buffer(memory, bytes, Memory::host, [](void* p) { cudaFreeHost(p); });
}

class Graph : public Recording {
 public:
  Graph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "instantiating a graph");
  }
  ~Graph() override { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void run() override { check(cudaGraphLaunch(executable_, stream_), "launching a graph"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
  cudaStream_t stream_;
};

// A block is copied from pinned memory to a slot on the GPU while the GPU computes, and from there to its fixed address
// in the computation's own order.
class GpuFeed : public Feed {
 public:
  GpuFeed(CudaBackend& backend, size_t bytes, cudaStream_t compute, cudaStream_t copies)
      : bytes_(bytes), compute_(compute), copies_(copies), block_(backend.allocate(bytes)) {
    for (Slot& slot : slots_) {
      slot.host = allocate_pinned(bytes);
      slot.device = backend.allocate(bytes);
    }
  }

  std::span<std::byte> next() override {
    Slot& slot = slots_[current_];
    if (slot.used) {
      slot.taken.wait();
    }
    return {static_cast<std::byte*>(slot.host.data()), bytes_};
  }

  void send() override {
    Slot& slot = slots_[current_];
    check(cudaMemcpyAsync(slot.device.data(), slot.host.data(), bytes_, cudaMemcpyHostToDevice, copies_),
          "copying to the GPU");
    slot.arrived.record(copies_);
    slot.arrived.order(compute_);
    check(cudaMemcpyAsync(block_.data(), slot.device.data(), bytes_, cudaMemcpyDeviceToDevice, compute_),
          "copying on the GPU");
    slot.taken.record(compute_);
    slot.used = true;
    current_ = (current_ + 1) % slots_.size();
  }

  void* block() const override { return block_.data(); }

 private:
  struct Slot {
    Buffer host, device;
    Event arrived, taken;
    bool used = false;
  };
  size_t bytes_;
  cudaStream_t compute_, copies_;
  Buffer block_;
  std::array<Slot, 3> slots_;
  size_t current_ = 0;
};

class GpuOutbox : public Outbox {
 public:
  GpuOutbox(CudaBackend& backend, size_t bytes, cudaStream_t stream)
      : bytes_(bytes), stream_(stream), block_(backend.allocate(bytes)) {
    for (Slot& slot : slots_) {
      slot.host = allocate_pinned(bytes);
    }
  }

  void post() override {
    require(waiting_ < slots_.size(), "more than {} results wait to be taken", slots_.size());
    Slot& slot = slots_[(oldest_ + waiting_) % slots_.size()];
    check(cudaMemcpyAsync(slot.host.data(), block_.data(), bytes_, cudaMemcpyDeviceToHost, stream_),
          "copying from the GPU");
    slot.arrived.record(stream_);
    ++waiting_;
  }
  size_t waiting() const override { return waiting_; }
  void take(void* to) override {
    require(waiting_ > 0, "no result waits to be taken");
    slots_[oldest_].arrived.wait();
    std::memcpy(to, slots_[oldest_].host.data(), bytes_);
    oldest_ = (oldest_ + 1) % slots_.size();
    --waiting_;
  }
  void* block() const override { return block_.data(); }

 private:
  struct Slot {
    Buffer host;
    Event arrived;
  };
  size_t bytes_;
  cudaStream_t stream_;
  Buffer block_;
  std::array<Slot, 8> slots_;
  size_t oldest_ = 0, waiting_ = 0;
};

}  // namespace

Buffer CudaBackend::allocate_host(size_t bytes) { return allocate_pinned(bytes); }

std::unique_ptr<Recording> CudaBackend::record(std::function<void()> body) {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning to record");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "ending a recording");
  return std::make_unique<Graph>(graph, stream_);
}

std::unique_ptr<Feed> CudaBackend::make_feed(size_t bytes) {
  return std::make_unique<GpuFeed>(*this, bytes, stream_, copy_stream_);
}

std::unique_ptr<Outbox> CudaBackend::make_outbox(size_t bytes) {
  return std::make_unique<GpuOutbox>(*this, bytes, stream_);
}

}  // namespace tandem::backend
