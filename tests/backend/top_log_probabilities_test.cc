#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::Matrix;
using testing::Results;

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

template <class T>
void expect_sorted_best(int64_t cols, int64_t k) {
  const auto backend = make_cpu_backend(2);
  auto logits = Matrix<T>::random(7, cols, static_cast<uint32_t>(cols), 5);  // bf16 values: many ties
  Top top = best<T>(*backend, logits.view(), k);
  for (int64_t r = 0; r < 7; ++r) {
    std::vector<int32_t> order(static_cast<size_t>(cols));
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      order[static_cast<size_t>(c)] = static_cast<int32_t>(c);
      sum += std::exp(static_cast<double>(logits.row(r)[c]));
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return static_cast<double>(logits.row(r)[a]) > static_cast<double>(logits.row(r)[b]);
    });
    for (int64_t i = 0; i < k; ++i) {
      const int32_t id = order[static_cast<size_t>(i)];
      ASSERT_EQ(top.ids.row(r)[i], id) << "place " << i << " of row " << r;
      ASSERT_NEAR(top.values.row(r)[i], static_cast<double>(logits.row(r)[id]) - std::log(sum), 1e-5);
    }
  }
}

TEST(TopLogProbabilities, EqualsASort) {
  for (const int64_t cols : {1, 31, 64, 1000, 32768}) {
    for (const int64_t k : {1, 4, 13, 64}) {
      if (k <= cols) {
        expect_sorted_best<float>(cols, k);
        expect_sorted_best<bf16>(cols, k);
        expect_sorted_best<double>(cols, k);
      }
    }
  }
}

TEST(TopLogProbabilities, ForbiddenPiecesComeLast) {
  const auto backend = make_cpu_backend(1);
  auto logits = Matrix<float>::filled(1, 10, -std::numeric_limits<double>::infinity());
  logits.data[4] = 1;
  logits.data[8] = 1;
  Top top = best<float>(*backend, logits.view(), 3);
  EXPECT_EQ(top.ids.data, (std::vector<int32_t>{4, 8, 0}));
  EXPECT_NEAR(top.values.data[0], -std::log(2.0), 1e-6);
  EXPECT_EQ(top.values.data[2], -std::numeric_limits<float>::infinity());
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

TEST(TopLogProbabilities, SameBitsAtAnyThreadCount) {
  testing::expect_same_bits_at_any_thread_count([](Backend& backend) {
    auto logits = Matrix<float>::random(50, 777, 1, 4);
    Top top = best<float>(backend, logits.view(), 5);
    Results results;
    append(results, top.values.data);
    append(results, top.ids.data);
    return results;
  });
}

TEST(TopLogProbabilities, RefusesMoreThanThereAre) {
  const auto backend = make_cpu_backend(1);
  auto logits = Matrix<float>::random(2, 3, 1);
  EXPECT_THROW(best<float>(*backend, logits.view(), 4), Error);
}

}  // namespace
}  // namespace tandem::backend
