#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Matrix;
using testing::Results;
using testing::Room;

class CudaMemory : public testing::CudaTest {};

TEST_F(CudaMemory, UploadAndDownloadKeepTheBytes) {
  Lab lab(*gpu());
  const auto values = Matrix<float>::random(7, 33, 1);
  EXPECT_EQ(lab.values<float>(lab.put(values.data, 7, 33)), values.data);
  const StepState state{.seed = 9, .step = 8, .first_source = 7, .first_target = 6, .learning_rate = 0.5F};
  const StepState back = lab.get(lab.put_struct(state));
  EXPECT_EQ(back.seed, state.seed);
  EXPECT_EQ(back.learning_rate, state.learning_rate);
}

template <class To, class From>
Results copied(Lab& lab, int64_t rows, int64_t cols, int64_t margin) {
  const Room to = lab.poisoned<To>(rows, cols, margin);
  lab.backend().copy(to, lab.random<From>(rows, cols, 1, 1, 2 * margin));
  Results results;
  lab.append(results, to);
  return results;
}

TEST_F(CudaMemory, CopyConverts) {
  for (const int64_t rows : {0, 1, 33}) {
    for (const int64_t cols : {1, 31, 1000}) {
      for (const int64_t margin : {0, 3}) {
        const std::string what = fmt::format("{} x {}, margin {}", rows, cols, margin);
        const testing::Tolerance exact{.absolute = 0, .relative = 0, .exact_zeros = true};
        expect_twins([&](Lab& lab) { return copied<float, float>(lab, rows, cols, margin); }, exact, what);
        expect_twins([&](Lab& lab) { return copied<bf16, bf16>(lab, rows, cols, margin); }, exact, what);
        expect_twins([&](Lab& lab) { return copied<bf16, float>(lab, rows, cols, margin); }, exact, what);
        expect_twins([&](Lab& lab) { return copied<float, bf16>(lab, rows, cols, margin); }, exact, what);
      }
    }
  }
}

TEST_F(CudaMemory, CopyOfInts) {
  Lab lab(*gpu());
  const std::vector<int32_t> values = {1, -2, 3, 1 << 30, -(1 << 30), 0};
  const View to = lab.poisoned_ints(2, 3);
  lab.backend().copy(to, lab.put(values, 2, 3));
  EXPECT_EQ(lab.values<int32_t>(to), values);
}

TEST_F(CudaMemory, CopyToBf16RoundsAsTheCpuDoes) {
  const std::vector<float> from = {1.0F, 1.00390625F, 1.01171875F, -1.0039064F, INFINITY, 1e-40F, 3.4e38F};
  const auto n = static_cast<int64_t>(from.size());
  Lab device(*gpu()), host(cpu());
  std::vector<std::vector<bf16>> results;
  for (Lab* lab : {&device, &host}) {
    const Room to = lab->poisoned(1, n);
    lab->backend().copy(to, lab->put(from, 1, n));
    results.push_back(lab->values<bf16>(to));
  }
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(results[0][i].bits, results[1][i].bits) << from[i];
  }
}

TEST_F(CudaMemory, FillZeroTouchesOnlyItsColumns) {
  for (const int64_t margin : {0, 3, 8}) {
    for (const int64_t rows : {1, 33}) {
      Lab lab(*gpu());
      const Room room = lab.poisoned(rows, 33, margin);
      lab.backend().fill_zero(room);
      const std::vector<bf16> values = lab.values<bf16>(room.whole);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto col = static_cast<int64_t>(i) % room.whole.cols;
        const bool inside = col >= margin && col < margin + 33;
        ASSERT_EQ(static_cast<float>(values[i]), inside ? 0 : testing::kMarginValue) << i;
      }
    }
  }
}

TEST_F(CudaMemory, TooMuchIsSaidWithBothFigures) {
  try {
    gpu()->allocate(size_t{1} << 50);
    FAIL() << "a petabyte was allocated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
  }
  Lab lab(*gpu());  // and work goes on
  EXPECT_EQ(lab.values<float>(lab.put(std::vector<float>{1, 2}, 1, 2)), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace tandem::backend
