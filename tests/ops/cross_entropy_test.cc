#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Device;
using testing::Lab;
using testing::Matrix;
using testing::Room;

class CrossEntropyOp : public testing::OpTest {};

const StepState kState{.loss_scale = 0.125F};

// Any label, the first of the largest logits, the last of them (wrong where there are several), none.
std::vector<int32_t> labels_of(Matrix<float>& logits, int64_t margin) {
  PhiloxStream random(5, 2);
  std::vector<int32_t> labels;
  const int64_t cols = logits.cols - 2 * margin;
  for (int64_t r = 0; r < logits.rows; ++r) {
    const float* row = logits.row(r) + margin;
    int32_t first = 0, last = 0;
    for (int32_t c = 1; c < cols; ++c) {
      first = row[c] > row[first] ? c : first;
      last = row[c] >= row[last] ? c : last;
    }
    const auto any = static_cast<int32_t>(random.below(static_cast<uint64_t>(cols)));
    labels.push_back(r % 5 == 1 ? first : r % 5 == 2 ? last : r % 5 == 3 ? -1 : any);
  }
  return labels;
}

struct Case {
  int64_t rows, cols;
  float smoothing = 0.1F;
  bool gradient = true;
  int64_t margin = 0;
};

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

TEST_F(CrossEntropyOp, LossAndGradient) {
  for (const Case& c : cases()) {
    if (leaves_out(16 * static_cast<double>(c.rows * c.cols))) {
      continue;
    }
    auto matrix = Matrix<float>::random(c.rows, c.cols + 2 * c.margin, 1, 4);
    const std::vector<int32_t> labels = labels_of(matrix, c.margin);
    expect_formula(
        [&](Lab& lab) {
          const Room logits = lab.c().put(matrix, c.margin);
          LossTotals* totals = lab.put_struct(LossTotals{.smoothed = 1, .nll = 2, .correct = 3, .tokens = 4});
          lab.backend().run(op::CrossEntropy{.totals = totals,
                                             .logits = logits,
                                             .labels = lab.put(labels),
                                             .smoothing = c.smoothing,
                                             .state = c.gradient ? lab.put_struct(kState) : nullptr});
          const LossTotals sums = lab.get(totals);
          lab.give("losses", {sums.smoothed, sums.nll}, {.absolute = 0, .relative = 1e-5});
          lab.give("counts", {sums.correct, sums.tokens}, testing::kExact);
          lab.give("logits", logits, {.absolute = 1e-7, .exact_zeros = c.cols > 1, .zeros = c.cols == 1});
        },
        fmt::format("rows {} cols {} smoothing {} gradient {} margin {}", c.rows, c.cols, c.smoothing, c.gradient,
                    c.margin));
  }
}

TEST_F(CrossEntropyOp, BadLogitsShow) {
  for (const Device& device : testing::devices()) {
    for (const int64_t cols : {33, 1024, 32768}) {
      for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
        Lab lab(*device.backend, device.types);
        auto matrix = Matrix<float>::random(2, cols, 1);
        if (bad == -INFINITY) {  // a row without any finite logit
          std::fill_n(matrix.row(1), cols, bad);
        } else {
          matrix.row(1)[cols - 2] = bad;
        }
        LossTotals* totals = lab.put_struct(LossTotals{});
        lab.backend().run(op::CrossEntropy{.totals = totals,
                                           .logits = lab.c().put(matrix),
                                           .labels = lab.put({3, 4}),
                                           .smoothing = 0.1F,
                                           .state = lab.put_struct(kState)});
        EXPECT_FALSE(std::isfinite(lab.get(totals).smoothed)) << bad << " in " << cols << " on " << device.name;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::backend
