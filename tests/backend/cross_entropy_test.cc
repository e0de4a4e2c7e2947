#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::ints;
using testing::Matrix;

const StepState kState{.loss_scale = 0.125F};

std::vector<int32_t> labels_of(int64_t rows, int64_t cols) {
  PhiloxStream random(5, 2);
  std::vector<int32_t> labels(static_cast<size_t>(rows));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = i % 5 == 3 ? -1 : static_cast<int32_t>(random.below(static_cast<uint64_t>(cols)));
  }
  return labels;
}

TEST(CrossEntropy, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  Matrix<double> logits(3, 3);
  logits.data = {std::log(1.0), std::log(2.0), std::log(5.0), 1, 1, 1, 7, 8, 9};
  std::vector<int32_t> labels = {2, 1, -1};
  LossTotals totals;
  backend->run(op::CrossEntropy{
      .totals = &totals, .logits = logits.view(), .labels = ints(labels), .smoothing = 0.1F, .state = &kState});
  const double eps = static_cast<double>(0.1F), other = eps / 2;
  const double nll0 = -std::log(5.0 / 8), nll1 = std::log(3.0);
  EXPECT_DOUBLE_EQ(totals.nll, nll0 + nll1);
  EXPECT_DOUBLE_EQ(totals.smoothed, (1 - eps) * nll0 - other * (std::log(1.0 / 8) + std::log(2.0 / 8)) + nll1);
  EXPECT_EQ(totals.correct, 1);  // in the second row all are equal: the first piece counts as the most likely
  EXPECT_EQ(totals.tokens, 2);
  const std::vector<double> expected = {0.125 * (1.0 / 8 - other),     0.125 * (2.0 / 8 - other),
                                        0.125 * (5.0 / 8 - (1 - eps)), 0.125 * (1.0 / 3 - other),
                                        0.125 * (1.0 / 3 - (1 - eps)), 0.125 * (1.0 / 3 - other)};
  EXPECT_TRUE(testing::close(std::span(logits.data).first(6), std::span(expected), 1e-12, 1e-12));
  EXPECT_EQ(std::vector<double>(logits.data.begin() + 6, logits.data.end()), (std::vector<double>{0, 0, 0}));
}

TEST(CrossEntropy, GradientMatchesCentralDifferences) {
  const auto backend = make_cpu_backend(1);
  for (const float smoothing : {0.0F, 0.1F}) {
    for (const int64_t cols : {2, 5, 37}) {
      auto logits = Matrix<double>::random(6, cols, 1, 3);
      std::vector<int32_t> labels = labels_of(6, cols);
      Matrix<double> numeric(6, cols);
      testing::numeric_gradient(numeric.span(), logits.span(), [&] {
        LossTotals totals;
        backend->run(op::CrossEntropy{
            .totals = &totals, .logits = logits.view(), .labels = ints(labels), .smoothing = smoothing});
        return totals.smoothed * 0.125;
      });
      LossTotals totals;
      backend->run(op::CrossEntropy{.totals = &totals,
                                    .logits = logits.view(),
                                    .labels = ints(labels),
                                    .smoothing = smoothing,
                                    .state = &kState});
      EXPECT_TRUE(testing::close(logits.span(), numeric.span(), 1e-8, 1e-6)) << cols;
    }
  }
}

TEST(CrossEntropy, LargeLogitsStayFiniteAndNanShows) {
  const auto backend = make_cpu_backend(1);
  Matrix<float> logits(1, 20);
  logits.data[3] = 1e4F;
  logits.data[5] = -1e30F;
  std::vector<int32_t> labels = {4};
  LossTotals totals;
  backend->run(op::CrossEntropy{.totals = &totals, .logits = logits.view(), .labels = ints(labels), .smoothing = 0});
  EXPECT_DOUBLE_EQ(totals.nll, 1e4);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t place : {size_t{0}, size_t{7}, size_t{19}}) {
      Matrix<float> broken(1, 20);
      broken.data[place] = bad;
      LossTotals found;
      backend->run(
          op::CrossEntropy{.totals = &found, .logits = broken.view(), .labels = ints(labels), .smoothing = 0.1F});
      EXPECT_FALSE(std::isfinite(found.smoothed)) << bad << " at " << place;
    }
  }
}

// Rows of an odd width begin at any address; that must not change a sum.
TEST(CrossEntropy, TheAddressDoesNotMatter) {
  const auto backend = make_cpu_backend(1);
  const auto row = Matrix<float>::random(1, 999, 1, 4);
  std::vector<int32_t> labels = {17};
  LossTotals first;
  for (size_t offset = 0; offset < 16; ++offset) {
    std::vector<float> memory(999 + 16);
    std::copy(row.data.begin(), row.data.end(), memory.data() + offset);
    LossTotals totals;
    backend->run(op::CrossEntropy{.totals = &totals,
                                  .logits = host_view(memory.data() + offset, 1, 999),
                                  .labels = ints(labels),
                                  .smoothing = 0.1F});
    first = offset == 0 ? totals : first;
    EXPECT_EQ(totals.smoothed, first.smoothed);
    EXPECT_EQ(totals.nll, first.nll);
  }
}

}  // namespace
}  // namespace tandem::backend
