// Collectives for GPU buffers through pinned host memory: copy down, exchange on the host, copy up, on a stream of its
// own. The exchange is a host function in that stream, so that all three can be recorded.
#include <map>
#include <mutex>
#include <tuple>

#include "dist/cuda/side_stream.h"
#include "dist/process_group.h"

namespace tandem::dist {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> own, Communicator& host, DeviceStream compute)
      : own_(std::move(own)), host_(own_ ? *own_ : host), side_(compute) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  int shard_number() const override { return host_.shard_number(); }

  Handle start(const Collective& call) override {
    refuse_rounding(call);
    if (call.kind == Kind::barrier) {
      return host_.start(call);
    }
    const View& buffer = call.buffer;
    require(buffer.memory == Memory::device && buffer.contiguous(), "only contiguous GPU memory can be staged");
    const std::string reason = failure();
    require(reason.empty(), "{}", reason);
    if (buffer.size() == 0) {
      return {};
    }
    Work& work = work_for(call);
    const auto bytes = work.pinned.bytes();
    const cudaStream_t stream = side_.begin();
    check_cuda(cudaMemcpyAsync(work.pinned.data(), buffer.data, bytes, cudaMemcpyDeviceToHost, stream),
               "copying from the GPU");
    check_cuda(cudaLaunchHostFunc(stream, run, &work), "giving work to the host");
    check_cuda(cudaMemcpyAsync(buffer.data, work.pinned.data(), bytes, cudaMemcpyHostToDevice, stream),
               "copying to the GPU");
    return side_.end();
  }

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
    Buffer pinned;
    Collective call;  // on `pinned`
  };

  static Buffer allocate_pinned(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, bytes), "allocating pinned host memory");
    return Buffer(memory, bytes, Memory::host, [](void* p) { cudaFreeHost(p); });
  }

  Work& work_for(const Collective& call) {
    const auto& [kind, buffer, sums, root] = call;
    std::unique_ptr<Work>& work = works_[{buffer.data, buffer.size(), buffer.dtype, kind, root}];
    if (work == nullptr) {
      work = std::make_unique<Work>(Work{this, allocate_pinned(buffer.bytes()), {}});
      work->call = {kind, make_view(work->pinned.data(), buffer.dtype, 1, buffer.size()), {}, root};
    }
    return *work;
  }

  static void CUDART_CB run(void* data) {
    auto& work = *static_cast<Work*>(data);
    StagedCommunicator& self = *work.owner;
    if (!self.failure().empty()) {
      return;
    }
    try {
      self.host_.start(work.call).wait();
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
