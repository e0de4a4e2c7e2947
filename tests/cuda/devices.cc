// The GPU, if there is one, for the tests of the ops.
#include "ops/op_test.h"

namespace tandem::testing {

namespace {

struct Gpu {
  std::unique_ptr<backend::Backend> backend;
  std::vector<Device> devices;
  std::string why_not;

  Gpu() {
    try {
      backend = backend::make_backend("cuda");
      const bool emulated = backend->description().find("Emulated") != std::string::npos;
      devices.push_back({emulated ? "an emulated GPU" : "the GPU", backend.get(), {backend.get()}, {}, true, emulated});
    } catch (const Error& error) {
      why_not = error.what();
    }
  }
};

const Gpu& the_gpu() {
  static const Gpu gpu;
  return gpu;
}

}  // namespace

std::span<const Device> devices() { return the_gpu().devices; }

const std::string& why_no_devices() { return the_gpu().why_not; }

}  // namespace tandem::testing
