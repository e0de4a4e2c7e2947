// Collectives for GPU buffers through pinned host memory: copy down, exchange on the host, copy up, on a stream of its
// own. The exchange is a host function in that stream, so that all three can be recorded.
#include <map>
#include <mutex>
#include <tuple>

#include "dist/cuda/side_stream.h"
#include "dist/device_communicator.h"

namespace tandem::dist {
namespace {

enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> own, Communicator& host, DeviceStream compute)
      : own_(std::move(own)), host_(own_ ? *own_ : host), side_(compute) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  int shard_number() const override { return host_.shard_number(); }

  Handle start_all_reduce(const View& buffer) override { return start(Kind::all_reduce, buffer, 0); }
  Handle start_reduce_scatter(const View& buffer) override { return start(Kind::reduce_scatter, buffer, 0); }
  Handle start_all_gather(const View& buffer) override { return start(Kind::all_gather, buffer, 0); }
  Handle start_broadcast(const View& buffer, int root) override { return start(Kind::broadcast, buffer, root); }
  Handle start_barrier() override { return host_.start_barrier(); }

  void abort(const std::string& reason) override { host_.abort(reason); }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  Traffic traffic() const override { return host_.traffic(); }
  double transfer_seconds() const override { return host_.transfer_seconds(); }

 private:
  // The argument of the host function; lives as long as the communicator, because a recording may run it at any time.
  struct Work {
    StagedCommunicator* owner;
    Kind kind;
    int root;
    Buffer pinned;
    View host;
  };

  static Buffer allocate_pinned(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, bytes), "allocating pinned host memory");
    return Buffer(memory, bytes, Memory::host, [](void* p) { cudaFreeHost(p); });
  }

  Work& work_for(Kind kind, const View& buffer, int root) {
    std::unique_ptr<Work>& work = works_[{buffer.data, buffer.size(), buffer.dtype, kind, root}];
    if (work == nullptr) {
      const auto bytes = static_cast<size_t>(buffer.size()) * size_of(buffer.dtype);
      work = std::make_unique<Work>(Work{this, kind, root, allocate_pinned(bytes), {}});
      work->host = make_view(work->pinned.data(), buffer.dtype, 1, buffer.size());
    }
    return *work;
  }

  Handle start(Kind kind, const View& buffer, int root) {
    require(buffer.memory == Memory::device && buffer.contiguous(), "only contiguous GPU memory can be staged");
    const std::string reason = failure();
    require(reason.empty(), "{}", reason);
    if (buffer.size() == 0) {
      return {};
    }
    Work& work = work_for(kind, buffer, root);
    const auto bytes = work.pinned.bytes();
    const cudaStream_t stream = side_.begin();
    check_cuda(cudaMemcpyAsync(work.host.data, buffer.data, bytes, cudaMemcpyDeviceToHost, stream),
               "copying from the GPU");
    check_cuda(cudaLaunchHostFunc(stream, run, &work), "giving work to the host");
    check_cuda(cudaMemcpyAsync(buffer.data, work.host.data, bytes, cudaMemcpyHostToDevice, stream),
               "copying to the GPU");
    return side_.end();
  }

  static void CUDART_CB run(void* data) {
    auto& work = *static_cast<Work*>(data);
    StagedCommunicator& self = *work.owner;
    if (!self.failure().empty()) {
      return;
    }
    try {
      switch (work.kind) {
        case Kind::all_reduce:
          return self.host_.all_reduce(work.host);
        case Kind::reduce_scatter:
          return self.host_.reduce_scatter(work.host);
        case Kind::all_gather:
          return self.host_.all_gather(work.host);
        case Kind::broadcast:
          return self.host_.broadcast(work.host, work.root);
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(self.mutex_);
      self.failure_ = error.what();
    }
  }

  std::unique_ptr<Communicator> own_;
  Communicator& host_;
  std::map<std::tuple<void*, int64_t, DType, Kind, int>, std::unique_ptr<Work>> works_;
  mutable std::mutex mutex_;  // guards the next
  std::string failure_;
  SideStream side_;  // last, so that it ends first
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, ProcessGroup& group,
                                                       DeviceStream compute) {
  return std::make_unique<StagedCommunicator>(std::move(host), group.communicator(), compute);
}

}  // namespace tandem::dist
