#include "dist/cuda/nccl_library.h"

#include <dlfcn.h>

namespace tandem::dist {
namespace {

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

}  // namespace

const NcclLibrary& nccl() {
  static const NcclLibrary library = open_library();
  return library;
}

}  // namespace tandem::dist
