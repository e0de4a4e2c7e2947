// The CPU in every type that it computes in, for the tests of the ops.
#include "ops/op_test.h"

namespace tandem::testing {

std::span<const Device> devices() {
  static std::vector<std::unique_ptr<backend::Backend>> backends;
  static const std::vector<Device> all = [] {
    std::vector<backend::Backend*> others;
    for (const int threads : {2, 3, 1, 4, 8, 16}) {
      others.push_back(backends.emplace_back(backend::make_cpu_backend(threads)).get());
    }
    backend::Backend* first = others.front();
    others.erase(others.begin());
    return std::vector<Device>{{"the CPU in f64", first, others, {DType::f64, DType::f64, DType::f64}},
                               {"the CPU in f32", first, others, {DType::f32, DType::f32, DType::f32}},
                               {"the CPU in f32 with sums in f64", first, others, {DType::f32, DType::f32, DType::f64}},
                               {"the CPU in bf16", first, others, {DType::bf16, DType::f32, DType::f32}}};
  }();
  return all;
}

const std::string& why_no_devices() {
  static const std::string none;
  return none;
}

}  // namespace tandem::testing
