#include "dist/communicator.h"

#include <mutex>
#include <vector>

#include "core/error.h"

namespace tandem::dist {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Handle start(const Collective& call) override {
    refuse_rounding(call);
    require(call.root == 0, "broadcast from rank {}, but there is only rank 0", call.root);
    require_communicable(call);
    const std::lock_guard lock(mutex_);
    require(failure_.empty(), "{}", failure_);
    return {};
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    failure_ = failure_.empty() ? reason : failure_;
  }

 private:
  std::mutex mutex_;
  std::string failure_;
};

class SilentCommunicator final : public Communicator {
 public:
  explicit SilentCommunicator(int size) : size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }

  Handle start(const Collective& call) override {
    if (call.kind == Kind::rounded_all_reduce) {
      require_communicable(call);
      std::copy_n(call.buffer.host<double>(), call.buffer.size(), call.sums.host<float>());
    }
    return {};
  }

  void abort(const std::string& /*reason*/) override {}

 private:
  int size_;
};

void require_host_memory(const View& buffer) {
  require(buffer.memory == Memory::host, "ranks exchange host memory, but this buffer is on a device: copy it first");
  require(buffer.contiguous(), "ranks exchange contiguous buffers, but this one has {} columns at a stride of {}",
          buffer.cols, buffer.stride);
}

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

std::unique_ptr<Communicator> make_silent_communicator(int size) {
  require(size > 0, "a step of {} ranks", size);
  return std::make_unique<SilentCommunicator>(size);
}

void require_communicable(const Collective& call) {
  const auto& [kind, values, sums, root] = call;
  require_host_memory(sums);
  require_host_memory(values);
  require(kind != Collective::Kind::rounded_all_reduce ||
              (sums.dtype == DType::f32 && values.dtype == DType::f64 && sums.size() == values.size()),
          "sums of {} {} cannot hold {} {} values: sums are rounded from f64 to f32", sums.size(), name_of(sums.dtype),
          values.size(), name_of(values.dtype));
}

void refuse_rounding(const Collective& call) {
  require(call.kind != Collective::Kind::rounded_all_reduce,
          "this engine cannot add f64 gradients: use dist.wire = \"f32\" or \"bf16\"");
}

double largest(Communicator& ranks, double value) {
  std::vector<double> all(static_cast<size_t>(ranks.size()));
  all[static_cast<size_t>(ranks.rank())] = value;
  ranks.all_reduce(host_view(all.data(), 1, ranks.size()));
  return *std::max_element(all.begin(), all.end());
}

}  // namespace tandem::dist
