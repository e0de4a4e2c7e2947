#include <memory>
#include <mutex>
#include <utility>

#include "dist/cuda/nccl_library.h"
#include "dist/cuda/side_stream.h"
#include "dist/device_communicator.h"

namespace tandem::dist {
namespace {

void check_nccl(ncclResult_t status, const char* what) {
  require(status == ncclSuccess, "{} failed: {}", what, nccl().get_error_string(status));
}

ncclDataType_t type_of(DType type) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclBfloat16, ncclFloat64, ncclInt32};
  return kTypes[static_cast<int>(type)];
}

std::string to_hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id;
  require(text.size() == 2 * sizeof id.internal, "rank 0 sent no identifier for NCCL");
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// Owns NCCL's communicator, which the process group may abort after our own object is gone.
struct Connection {
  std::mutex mutex;
  ncclComm_t comm = nullptr;
  bool closed = false;
  std::string failure;

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (failure.empty() && !closed) {
      failure = reason;
      nccl().comm_abort(comm);  // ends the kernels that wait for a peer
    }
  }
  void close() {
    const std::lock_guard lock(mutex);
    if (failure.empty() && !std::exchange(closed, true)) {
      nccl().comm_destroy(comm);
    }
  }
  std::string problem() {
    const std::lock_guard lock(mutex);
    ncclResult_t status = ncclSuccess;
    if (failure.empty() && (nccl().comm_get_async_error(comm, &status) != ncclSuccess || status != ncclSuccess)) {
      return fmt::format("NCCL failed: {}", nccl().get_error_string(status));
    }
    return failure;
  }
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(ProcessGroup& group, DeviceStream compute) : group_(group), side_(compute) {
    ncclUniqueId id{};
    if (group.rank() == 0) {
      check_nccl(nccl().get_unique_id(&id), "starting NCCL");
    }
    id = from_hex(group.gather(to_hex(id)).front());
    check_nccl(nccl().comm_init_rank(&comm_, group.size(), id, group.rank()), "connecting the GPUs with NCCL");
    connection_->comm = comm_;
    group.on_failure([connection = connection_](const std::string& reason) { connection->abort(reason); });
  }
  ~NcclCommunicator() override { connection_->close(); }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  // Two calls, so that the sums are those of a reduce-scatter; NCCL's own all-reduce if the shards are not equal.
  Handle start_all_reduce(const View& buffer) override {
    return start(buffer, [&](cudaStream_t stream) {
      if (buffer.size() % size() == 0) {
        reduce_scatter_on(stream, buffer);
        all_gather_on(stream, buffer);
      } else {
        check_nccl(
            nccl().all_reduce(buffer.data, buffer.data, count(buffer), type_of(buffer.dtype), ncclSum, comm_, stream),
            "an all-reduce with NCCL");
      }
    });
  }
  Handle start_reduce_scatter(const View& buffer) override {
    return start(buffer, [&](cudaStream_t stream) { reduce_scatter_on(stream, buffer); });
  }
  Handle start_all_gather(const View& buffer) override {
    return start(buffer, [&](cudaStream_t stream) { all_gather_on(stream, buffer); });
  }
  Handle start_broadcast(const View& buffer, int root) override {
    return start(buffer, [&](cudaStream_t stream) {
      check_nccl(nccl().broadcast(buffer.data, buffer.data, count(buffer), type_of(buffer.dtype), root, comm_, stream),
                 "a broadcast with NCCL");
    });
  }
  Handle start_barrier() override { return group_.communicator().start_barrier(); }

  void abort(const std::string& reason) override { connection_->abort(reason); }
  std::string failure() const override { return connection_->problem(); }
  Traffic traffic() const override { return {}; }  // recorded calls cannot be counted here

 private:
  static size_t count(const View& buffer) { return static_cast<size_t>(buffer.size()); }
  void* own_shard_of(const View& buffer) const {
    return static_cast<std::byte*>(buffer.data) +
           count(buffer) / static_cast<size_t>(size()) * static_cast<size_t>(rank()) * size_of(buffer.dtype);
  }
  void reduce_scatter_on(cudaStream_t stream, const View& buffer) {
    check_nccl(nccl().reduce_scatter(buffer.data, own_shard_of(buffer), each(buffer), type_of(buffer.dtype), ncclSum,
                                     comm_, stream),
               "a reduce-scatter with NCCL");
  }
  void all_gather_on(cudaStream_t stream, const View& buffer) {
    check_nccl(nccl().all_gather(own_shard_of(buffer), buffer.data, each(buffer), type_of(buffer.dtype), comm_, stream),
               "an all-gather with NCCL");
  }
  size_t each(const View& buffer) const {
    require(buffer.size() % size() == 0, "{} elements cannot be cut into {} equal shards", buffer.size(), size());
    return count(buffer) / static_cast<size_t>(size());
  }
  template <class Work>
  Handle start(const View& buffer, const Work& work) {
    require(buffer.memory == Memory::device && buffer.contiguous(), "NCCL works on contiguous GPU memory only");
    const std::string reason = failure();
    require(reason.empty(), "{}", reason);
    if (buffer.size() == 0) {
      return {};
    }
    work(side_.begin());
    return side_.end();
  }

  ProcessGroup& group_;
  SideStream side_;
  ncclComm_t comm_ = nullptr;
  const std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
};

}  // namespace

std::string why_no_nccl() { return nccl().problem; }

std::unique_ptr<Communicator> make_nccl_communicator(ProcessGroup& group, DeviceStream compute) {
  return std::make_unique<NcclCommunicator>(group, compute);
}

}  // namespace tandem::dist
