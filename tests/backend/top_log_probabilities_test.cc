#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

struct Top {
  Matrix<float> values;
  Matrix<int32_t> ids;
};

template <class T>
Top best(Backend& backend, const View& logits, int64_t k) {
  Top top{Matrix<float>(logits.rows, k), Matrix<int32_t>(logits.rows, k)};
  backend.run(op::TopLogProbabilities{.values = top.values.view(), .ids = top.ids.view(), .logits = logits});
  return top;
}

TEST(TopLogProbabilities, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  Matrix<float> logits(2, 4);
  logits.data = {std::log(1.0F), std::log(4.0F), std::log(2.0F), std::log(3.0F), 5, 7, 5, 7};
  Top top = best<float>(*backend, logits.view(), 3);
  EXPECT_EQ(top.ids.data, (std::vector<int32_t>{1, 3, 2, 1, 3, 0}));  // ties to the lower id
  EXPECT_NEAR(top.values.data[0], std::log(0.4), 1e-6);
  EXPECT_NEAR(top.values.data[1], std::log(0.3), 1e-6);
  EXPECT_NEAR(top.values.data[2], std::log(0.2), 1e-6);
  EXPECT_EQ(top.values.data[3], top.values.data[4]);
}

TEST(TopLogProbabilities, ARowDoesNotDependOnTheOthers) {
  const auto backend = make_cpu_backend(3);
  auto logits = Matrix<float>::random(9, 1001, 1, 4);
  Top all = best<float>(*backend, logits.view(), 8);
  for (int64_t r = 0; r < 9; ++r) {
    auto row = Matrix<float>(1, 1001);
    std::copy_n(logits.row(r), 1001, row.data.begin());
    Top one = best<float>(*backend, row.view(), 8);
    EXPECT_TRUE(std::equal(one.values.data.begin(), one.values.data.end(), all.values.row(r)));
    EXPECT_TRUE(std::equal(one.ids.data.begin(), one.ids.data.end(), all.ids.row(r)));
  }
}

}  // namespace
}  // namespace tandem::backend
