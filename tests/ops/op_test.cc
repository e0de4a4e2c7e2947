#include "ops/op_test.h"

#include <cstdlib>
#include <iostream>

#include "reference/reference_backend.h"

namespace tandem::testing {

namespace {

// |actual - expected| <= absolute + relative * the larger of them.
struct Tolerance {
  double absolute, relative;
};

// The absolute errors of f64 and f32 are of the largest value that is expected in an output.
constexpr Tolerance kF64{1e-13, 1e-12};
constexpr Tolerance kF32{2e-6, 1e-5};
constexpr Tolerance kBf16{2e-3, 1.0 / 128};   // one step of bf16
constexpr Tolerance kSumsOfBf16{1e-3, 1e-4};  // in f32, from bf16

// A CPU takes all cases of at most kFewProducts, which the reference multiplies, and every fifth of the larger ones up
// to kManyProducts.
constexpr double kFewProducts = 3.2e5, kManyProducts = 6e6;

Tolerance tolerance_of(const Output& output, const Types& types) {
  if (output.bound.exact) {
    return {0, 0};
  }
  if (types.c == DType::bf16) {
    const Tolerance usual = output.type == DType::bf16 ? kBf16 : kSumsOfBf16;
    return {output.bound.absolute < 0 ? usual.absolute : output.bound.absolute,
            output.bound.relative < 0 ? usual.relative : output.bound.relative};
  }
  double largest = 0;
  for (const double value : output.values) {
    largest = std::fmax(largest, std::fabs(value));
  }
  const Tolerance usual = types.c == DType::f64 && output.type == DType::f64 ? kF64 : kF32;
  return {usual.absolute * largest, usual.relative};
}

// |actual - expected| / |expected| as vectors; NaN where there is one.
double distance(const Results& actual, const Results& expected) {
  double sum = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(sum / norm);
}

void compare(const Output& actual, const Output& expected, const Types& types) {
  const Bound& bound = expected.bound;
  ASSERT_EQ(actual.values.size(), expected.values.size()) << expected.name;
  if (bound.of_norm > 0 && types.c == DType::bf16) {
    EXPECT_LE(distance(actual.values, expected.values), bound.of_norm) << expected.name;
    return;
  }
  const Tolerance tolerance = tolerance_of(expected, types);
  if (bound.zeros && std::ranges::all_of(expected.values, [](double value) { return value == 0; })) {
    EXPECT_TRUE(std::ranges::all_of(
        actual.values, [&](double value) { return std::fabs(value) <= (bound.exact_zeros ? 0 : tolerance.absolute); }))
        << expected.name << " is not all zeros";
    return;
  }
  EXPECT_TRUE(all_close(actual.values, expected.values, tolerance.absolute, tolerance.relative)) << expected.name;
  for (size_t i = 0; bound.exact_zeros && i < actual.values.size(); ++i) {
    ASSERT_FALSE(expected.values[i] == 0 && actual.values[i] != 0)
        << expected.name << ": " << actual.values[i] << " instead of 0 at " << i;
  }
}

}  // namespace

void OpTest::SetUp() {
  if (devices().empty()) {
    GTEST_SKIP() << "not run: " << why_no_devices();
  }
}

void OpTest::TearDown() {
  if (left_out_ > 0) {
    std::cout << devices()[0].name << " took " << cases_ - left_out_ << " of " << cases_
              << " cases; TANDEM_SOAK=1 takes all\n";
  }
}

bool OpTest::leaves_out(double products) {
  static const bool all = std::getenv("TANDEM_SOAK") != nullptr;
  const Device& device = devices()[0];
  const bool large = device.gpu ? device.emulated : products > kFewProducts;
  const bool leave = !all && large && (cases_ % 5 != 0 || (!device.gpu && products > kManyProducts));
  ++cases_;
  left_out_ += leave ? 1 : 0;
  return leave;
}

void OpTest::expect_formula(const std::function<void(Lab&)>& run, const std::string& what) {
  ++compared_;
  for (const Device& device : devices()) {
    SCOPED_TRACE(what + " on " + device.name);
    Lab lab(*device.backend, device.types), again(*device.others[compared_ % device.others.size()], device.types),
        reference(reference::reference_backend(), device.types);
    run(lab);
    run(again);
    run(reference);
    ASSERT_FALSE(reference.outputs().empty());
    ASSERT_EQ(lab.outputs().size(), reference.outputs().size());
    for (size_t i = 0; i < lab.outputs().size(); ++i) {
      const Output &first = lab.outputs()[i], &second = again.outputs()[i];
      compare(first, reference.outputs()[i], device.types);
      EXPECT_TRUE(first.values.size() == second.values.size() &&
                  (first.values.empty() ||
                   std::memcmp(first.values.data(), second.values.data(), first.values.size() * sizeof(double)) == 0))
          << first.name << " has other bits the second time";
    }
  }
}

}  // namespace tandem::testing
