// The tests of the ops: each case runs on the devices of the test program and on the reference (tests/reference), which
// is the specification. test_backend has the CPU in every type, test_cuda the GPU; on an emulated GPU it is the same
// program.
#pragma once

#include <span>
#include <vector>

#include "ops/lab.h"

namespace tandem::testing {

struct Device {
  std::string name;
  backend::Backend* backend;
  std::vector<backend::Backend*> others;  // where the same gives the same bits: CPUs with other numbers of threads
  Types types;
  bool gpu = false, emulated = false;
};

// Of this program; none where it has no GPU.
std::span<const Device> devices();
const std::string& why_no_devices();

class OpTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // To be asked for each case of a long list. An emulated GPU takes every fifth, which leaves no value of the lists'
  // inner loops out, but some combinations and so some kernels. A CPU, which has several types to run, leaves out what
  // takes the reference long: `products` are its multiplications. TANDEM_SOAK=1 takes all.
  bool leaves_out(double products = 0);
  bool leaves_out_on_a_cpu(double products) { return !devices()[0].gpu && leaves_out(products); }

  // run(lab) gives what the reference gives, and the same bits when it is done again, on one of the others in turn.
  void expect_formula(const std::function<void(Lab&)>& run, const std::string& what);

 private:
  int cases_ = 0, left_out_ = 0;
  size_t compared_ = 0;
};

}  // namespace tandem::testing
