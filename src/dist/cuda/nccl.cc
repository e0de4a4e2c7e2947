#include <dlfcn.h>
#include <nccl.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "dist/cuda/side_stream.h"
#include "dist/message.h"
#include "dist/process_group.h"

namespace tandem::dist {
namespace {

// NVIDIA's NCCL, loaded at run time, so that the same binary also runs without it.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;

  std::string problem;  // empty if all functions were found
};

NcclLibrary open_library() {
  NcclLibrary library;
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    library.problem = std::string("NCCL cannot be loaded: ") + (reason == nullptr ? "libnccl.so.2 is missing" : reason);
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) {
      library.problem = std::string("NCCL has no function ") + name;
    }
  };
  find(library.get_unique_id, "ncclGetUniqueId");
  find(library.comm_init_rank, "ncclCommInitRank");
  find(library.comm_destroy, "ncclCommDestroy");
  find(library.comm_abort, "ncclCommAbort");
  find(library.comm_get_async_error, "ncclCommGetAsyncError");
  find(library.get_error_string, "ncclGetErrorString");
  find(library.all_reduce, "ncclAllReduce");
  find(library.reduce_scatter, "ncclReduceScatter");
  find(library.all_gather, "ncclAllGather");
  find(library.broadcast, "ncclBroadcast");
  return library;
}

const NcclLibrary& nccl() {
  static const NcclLibrary library = open_library();
  return library;
}

void check_nccl(ncclResult_t status, const char* what) {
  require(status == ncclSuccess, "{} failed: {}", what, nccl().get_error_string(status));
}

ncclDataType_t type_of(DType type) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclBfloat16, ncclFloat64, ncclInt32};
  return kTypes[static_cast<int>(type)];
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
    id = from_hex(
        group.gather(to_hex({reinterpret_cast<const unsigned char*>(id.internal), sizeof id.internal})).front());
    check_nccl(nccl().comm_init_rank(&comm_, group.size(), id, group.rank()), "connecting the GPUs with NCCL");
    connection_->comm = comm_;
    group.on_failure([connection = connection_](const std::string& reason) { connection->abort(reason); });
  }
  ~NcclCommunicator() override { connection_->close(); }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  Handle start(const Collective& call) override {
    refuse_rounding(call);
    if (call.kind == Kind::barrier) {
      return group_.communicator().start(call);
    }
    require(call.buffer.memory == Memory::device && call.buffer.contiguous(),
            "NCCL works on contiguous GPU memory only");
    const std::string reason = failure();
    require(reason.empty(), "{}", reason);
    if (call.buffer.size() == 0) {
      return {};
    }
    run(side_.begin(), call);
    return side_.end();
  }

  void abort(const std::string& reason) override { connection_->abort(reason); }
  std::string failure() const override { return connection_->problem(); }

 private:
  static size_t count(const View& buffer) { return static_cast<size_t>(buffer.size()); }
  void* own_shard_of(const View& buffer) const {
    return static_cast<std::byte*>(buffer.data) +
           count(buffer) / static_cast<size_t>(size()) * static_cast<size_t>(rank()) * size_of(buffer.dtype);
  }
  // An all-reduce is two calls, so that its sums equal a reduce-scatter's; NCCL's own call if shards are not equal.
  void run(cudaStream_t stream, const Collective& call) const {
    const View& buffer = call.buffer;
    const ncclDataType_t type = type_of(buffer.dtype);
    if (call.kind == Kind::broadcast) {
      check_nccl(nccl().broadcast(buffer.data, buffer.data, count(buffer), type, call.root, comm_, stream),
                 "a broadcast with NCCL");
    } else if (call.kind == Kind::all_reduce && buffer.size() % size() != 0) {
      check_nccl(nccl().all_reduce(buffer.data, buffer.data, count(buffer), type, ncclSum, comm_, stream),
                 "an all-reduce with NCCL");
    } else {
      if (call.kind != Kind::all_gather) {
        check_nccl(nccl().reduce_scatter(buffer.data, own_shard_of(buffer), each(buffer), type, ncclSum, comm_, stream),
                   "a reduce-scatter with NCCL");
      }
      if (call.kind != Kind::reduce_scatter) {
        check_nccl(nccl().all_gather(own_shard_of(buffer), buffer.data, each(buffer), type, comm_, stream),
                   "an all-gather with NCCL");
      }
    }
  }
  size_t each(const View& buffer) const {
    require(buffer.size() % size() == 0, "{} elements cannot be cut into {} equal shards", buffer.size(), size());
    return count(buffer) / static_cast<size_t>(size());
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
