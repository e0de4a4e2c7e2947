#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Device;
using testing::Lab;
using testing::Room;

class MemoryOps : public testing::OpTest {};

TEST_F(MemoryOps, UploadAndDownloadKeepTheBytes) {
  for (const Device& device : testing::devices()) {
    Lab lab(*device.backend);
    const auto values = testing::Matrix<float>::random(7, 33, 1);
    EXPECT_EQ(lab.values<float>(lab.put(values.data, 7, 33)), values.data);
    const StepState state{.seed = 9, .step = 8, .first_source = 7, .first_target = 6, .learning_rate = 0.5F};
    const StepState back = lab.get(lab.put_struct(state));
    EXPECT_EQ(back.seed, state.seed);
    EXPECT_EQ(back.learning_rate, state.learning_rate);
  }
}

TEST_F(MemoryOps, CopyConverts) {
  for (const int64_t rows : {0, 1, 33}) {
    for (const int64_t cols : {1, 31, 1000}) {
      for (const int64_t margin : {0, 3}) {
        expect_formula(
            [&](Lab& lab) {
              const DType types[] = {DType::f32, lab.types().c, lab.types().m};
              for (const DType from : types) {
                for (const DType to : types) {
                  const Room copy = lab.of(to).poisoned(rows, cols, margin);
                  lab.backend().copy(copy, lab.of(from).random(rows, cols, 1, 1, 2 * margin));
                  lab.give(fmt::format("{} of {}", name_of(to), name_of(from)), copy, testing::kExact);
                }
              }
            },
            fmt::format("{} x {}, margin {}", rows, cols, margin));
      }
    }
  }
}

TEST_F(MemoryOps, CopyOfInts) {
  expect_formula(
      [](Lab& lab) {
        const View to = lab.poisoned_ints(2, 3);
        lab.backend().copy(to, lab.put(std::vector<int32_t>{1, -2, 3, 1 << 30, -(1 << 30), 0}, 2, 3));
        lab.give_ints("ints", to);
      },
      "ints");
}

// Ties go to the even mantissa; what is more than a bf16 holds is infinite.
TEST_F(MemoryOps, CopyToBf16Rounds) {
  const std::vector<float> from = {1.0F,     1.00390625F, 1.01171875F, -1.0039064F,
                                   INFINITY, 1e-40F,      3.4e38F,     std::nanf("")};
  const std::vector<float> expected = {1.0F, 1.0F, 1.015625F, -1.0078125F, INFINITY, 1.00112e-40F, INFINITY};
  for (const Device& device : testing::devices()) {
    Lab lab(*device.backend);
    const auto n = static_cast<int64_t>(from.size());
    const Room to = lab.c().poisoned(1, n);
    lab.backend().copy(to, lab.put(from, 1, n));
    const std::vector<bf16> values = lab.values<bf16>(to.whole);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(values[i].bits, bf16(expected[i]).bits) << from[i] << " on " << device.name;
    }
    EXPECT_TRUE(std::isnan(static_cast<float>(values.back())));
  }
}

TEST_F(MemoryOps, FillZeroTouchesOnlyItsColumns) {
  for (const int64_t margin : {0, 3, 8}) {
    for (const int64_t rows : {1, 33}) {
      expect_formula(
          [&](Lab& lab) {
            const Room room = lab.c().poisoned(rows, 33, margin);
            lab.backend().fill_zero(room);
            lab.give("zeros", room, testing::kExact);
          },
          fmt::format("{} rows, margin {}", rows, margin));
    }
  }
}

}  // namespace
}  // namespace tandem::backend
