// Tests that need a GPU; skipped, with the reason, where there is none. It may be an emulated one (tools/emulated_gpu).
#pragma once

#include "ops/op_test.h"

namespace tandem::testing {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) {
      GTEST_SKIP() << "not run: " << why_no_devices();
    }
  }

  static bool emulated() { return devices()[0].emulated; }
  static backend::Backend* gpu() { return devices()[0].backend; }
  static backend::Backend& cpu() {
    static const auto cpu = backend::make_cpu_backend();
    return *cpu;
  }
};

}  // namespace tandem::testing
