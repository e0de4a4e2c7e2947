#include <cmath>

#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Matrix;
using testing::Results;
using testing::Room;

class CudaCrossEntropy : public testing::CudaTest {};

const StepState kState{.loss_scale = 0.125F};

// Any label, none, the first of the largest logits, the last of them (wrong where there are several).
std::vector<int32_t> labels_of(Matrix<bf16>& logits, int64_t cols, int64_t margin) {
  PhiloxStream random(5, 2);
  std::vector<int32_t> labels;
  for (int64_t r = 0; r < logits.rows; ++r) {
    const bf16* row = logits.row(r) + margin;
    int32_t first = 0, last = 0;
    for (int32_t c = 1; c < cols; ++c) {
      first = static_cast<float>(row[c]) > static_cast<float>(row[first]) ? c : first;
      last = static_cast<float>(row[c]) >= static_cast<float>(row[last]) ? c : last;
    }
    const auto any = static_cast<int32_t>(random.below(static_cast<uint64_t>(cols)));
    labels.push_back(r % 5 == 0 ? any : r % 5 == 1 ? first : r % 5 == 2 ? last : r % 5 == 3 ? -1 : any);
  }
  return labels;
}

struct Case {
  int64_t rows, cols;
  float smoothing = 0.1F;
  bool gradient = true;
  int64_t margin = 0;
};

struct Outcome {
  LossTotals totals;
  std::vector<bf16> logits;
};

Outcome run(Lab& lab, const Case& c) {
  auto matrix = Matrix<bf16>::random(c.rows, c.cols + 2 * c.margin, 1, 4);
  const View labels = lab.put(labels_of(matrix, c.cols, c.margin));
  const Room logits = lab.random(c.rows, c.cols, 1, 4, c.margin);
  LossTotals* totals = lab.put_struct(LossTotals{.smoothed = 1, .nll = 2, .correct = 3, .tokens = 4});
  const StepState* state = lab.put_struct(kState);
  lab.backend().run(op::CrossEntropy{.totals = totals,
                                     .logits = logits,
                                     .labels = labels,
                                     .smoothing = c.smoothing,
                                     .state = c.gradient ? state : nullptr});
  return {lab.get(totals), lab.values<bf16>(logits.whole)};
}

Results results_of(const Outcome& outcome) {
  Results results = {outcome.totals.smoothed, outcome.totals.nll, outcome.totals.correct, outcome.totals.tokens};
  testing::append(results, outcome.logits);
  return results;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const float smoothing : {0.0F, 0.1F}) {
    for (const int64_t cols : {1, 2, 31, 33, 64, 1000, 4096, 8192, 10000, 32768, 40000, 65544}) {
      all.push_back({.rows = 33, .cols = cols, .smoothing = smoothing});
    }
  }
  for (const int64_t rows : {0, 1, 31, 1000, 3001}) {
    for (const int64_t cols : {33, 96}) {
      all.push_back({.rows = rows, .cols = cols});
      all.push_back({.rows = rows, .cols = cols, .margin = 8});
      all.push_back({.rows = rows, .cols = cols, .gradient = false, .margin = 3});
    }
  }
  all.push_back({.rows = 600, .cols = 8192});
  all.push_back({.rows = 300, .cols = 32768, .gradient = false});
  return all;
}

TEST_F(CudaCrossEntropy, LossAndGradient) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    const std::string what = fmt::format("rows {} cols {} smoothing {} gradient {} margin {}", c.rows, c.cols,
                                         c.smoothing, c.gradient, c.margin);
    expect_twins([&](Lab& lab) { return results_of(run(lab, c)); }, {.absolute = 1e-7, .exact_zeros = c.cols > 1},
                 what);
    Lab device(*gpu()), host(cpu());
    const LossTotals actual = run(device, c).totals, expected = run(host, c).totals;
    EXPECT_EQ(actual.correct, expected.correct) << what;
    EXPECT_EQ(actual.tokens, expected.tokens) << what;
    EXPECT_NEAR(actual.smoothed, expected.smoothed, 1e-5 * std::fabs(expected.smoothed)) << what;
    EXPECT_NEAR(actual.nll, expected.nll, 1e-5 * std::fabs(expected.nll)) << what;
  }
}

TEST_F(CudaCrossEntropy, BadLogitsShow) {
  for (const int64_t cols : {33, 1024, 32768}) {
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
      Lab lab(*gpu());
      auto matrix = Matrix<bf16>::random(2, cols, 1);
      if (std::isinf(bad) && bad < 0) {  // a row without any finite logit
        std::fill_n(matrix.row(1), cols, bf16(-INFINITY));
      } else {
        matrix.row(1)[cols - 2] = bf16(static_cast<float>(bad));
      }
      LossTotals* totals = lab.put_struct(LossTotals{});
      lab.backend().run(op::CrossEntropy{.totals = totals,
                                         .logits = lab.put(matrix.data, 2, cols),
                                         .labels = lab.put({3, 4}),
                                         .smoothing = 0.1F,
                                         .state = lab.put_struct(kState)});
      EXPECT_FALSE(std::isfinite(lab.get(totals).smoothed)) << bad << " in " << cols;
    }
  }
}

}  // namespace
}  // namespace tandem::backend
