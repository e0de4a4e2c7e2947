#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Device;
using testing::Lab;
using testing::Matrix;
using testing::Results;
using testing::Room;

class ProjectedLossOp : public testing::OpTest {};

const StepState kState{.loss_scale = 0.125F};

struct Case {
  int64_t rows, d, pieces;
  float smoothing = 0.1F;
  bool accumulate = false;
  double logits = 4;  // how large they are
  int64_t margin = 0;

  double products() const { return static_cast<double>(3 * rows * d * pieces); }
};

std::string describe(const Case& c) {
  return fmt::format("rows {} d {} pieces {} smoothing {} accumulate {} logits {} margin {}", c.rows, c.d, c.pieces,
                     c.smoothing, c.accumulate, c.logits, c.margin);
}

// Multiples of 1/4, so that logits are sums without rounding, and often the same.
Matrix<float> coarse(int64_t rows, int64_t cols, uint32_t seed, double scale) {
  auto matrix = Matrix<float>::random(rows, cols, seed, 2);
  for (float& value : matrix.data) {
    value = std::round(value) / 4 * static_cast<float>(scale);
  }
  return matrix;
}

struct Inputs {
  explicit Inputs(const Case& c)
      : x(coarse(c.rows, c.d, 1, 1)),
        w(coarse(c.pieces, c.d, 2, std::exp2(std::round(std::log2(8 * c.logits / std::sqrt(double(c.d))))))) {
    // Any label, none, the likeliest piece (the first of them, and the last).
    PhiloxStream random(5, 2);
    for (int64_t r = 0; r < c.rows; ++r) {
      int32_t first = 0, last = 0;
      float most = -INFINITY;
      for (int32_t v = 0; r % 4 < 2 && v < c.pieces; ++v) {
        float logit = 0;
        for (int64_t i = 0; i < c.d; ++i) {
          logit += x.row(r)[i] * w.row(v)[i];
        }
        const float rounded = bf16(logit);
        first = rounded > most ? v : first;
        last = rounded >= most ? v : last;
        most = std::max(most, rounded);
      }
      const auto any = static_cast<int32_t>(random.below(static_cast<uint64_t>(c.pieces)));
      labels.push_back(r % 4 == 0 ? first : r % 4 == 1 ? last : r % 12 == 3 ? -1 : any);
    }
  }

  Matrix<float> x, w;
  std::vector<int32_t> labels;
};

struct Given {
  LossTotals totals;
  Room dx, dw;
};

Given run(Lab& lab, const Case& c, const Inputs& in) {
  const Room dx = lab.c().poisoned(c.rows, c.d, c.margin), logits = lab.c().poisoned(c.rows + 8, c.pieces, c.margin);
  const Room dw = c.accumulate ? lab.g().random(c.pieces, c.d, 4, 0.01) : lab.g().poisoned(c.pieces, c.d);
  LossTotals* totals = lab.put_struct(LossTotals{.smoothed = 1, .nll = 2, .correct = 3, .tokens = 4});
  lab.backend().run(op::ProjectedLoss{.totals = totals,
                                      .dx = dx,
                                      .dw = dw,
                                      .logits = logits,
                                      .x = lab.c().put(in.x),
                                      .w = lab.c().put(in.w),
                                      .labels = lab.put(in.labels),
                                      .smoothing = c.smoothing,
                                      .state = lab.put_struct(kState),
                                      .accumulate = c.accumulate});
  return {lab.get(totals), dx, dw};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t rows : {1, 2, 31, 33, 129, 1000}) {
    for (const auto& [d, pieces] : {std::pair<int64_t, int64_t>{64, 64}, {128, 320}, {512, 1088}, {1024, 512}}) {
      all.push_back({.rows = rows, .d = d, .pieces = pieces, .accumulate = rows % 2 == 0});
    }
    all.push_back({.rows = rows, .d = 192, .pieces = 8192, .smoothing = 0});
    all.push_back({.rows = rows, .d = 256, .pieces = 1000});  // the other way: no whole tiles
  }
  for (const double logits : {0.1, 8.0, 16.0}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      all.push_back({.rows = 100, .d = 512, .pieces = 4096, .smoothing = smoothing, .logits = logits, .margin = 8});
    }
  }
  all.push_back({.rows = 700, .d = 512, .pieces = 32768});
  all.push_back({.rows = 2305, .d = 64, .pieces = 4352});  // several bands of tiles
  all.push_back({.rows = 100, .d = 640, .pieces = 512});
  return all;
}

// The gradient of the logits, or of what a device has in their place, is rounded to bf16 before it is multiplied.
TEST_F(ProjectedLossOp, LossAndGradients) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products())) {
      continue;
    }
    const Inputs in(c);
    expect_formula(
        [&](Lab& lab) {
          const Given given = run(lab, c, in);
          lab.give("losses", {given.totals.smoothed, given.totals.nll}, {.absolute = 0, .relative = 1e-5});
          lab.give("counts", {given.totals.correct, given.totals.tokens}, testing::kExact);
          lab.give("dx", given.dx, {.of_norm = 1e-2});
          lab.give("dw", given.dw, {.of_norm = 1e-2});
        },
        describe(c));
  }
}

bool all_finite(const Results& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

// A piece's logit above what an exponential holds: `label` is the label's and those of all others but one.
TEST_F(ProjectedLossOp, HugeLogits) {
  for (const double label : {80.0, 20000.0}) {
    for (const double above : {20.0, 100.0, 170.0, 920.0}) {
      for (const float smoothing : {0.0F, 0.1F}) {
        const Case c{.rows = 40, .d = 64, .pieces = 512, .smoothing = smoothing};
        Inputs in(c);
        for (int64_t r = 0; r < c.rows; ++r) {
          std::fill_n(in.x.row(r), c.d, 1.0F);
          in.labels[static_cast<size_t>(r)] = static_cast<int32_t>(r);
        }
        for (int64_t v = 0; v < c.pieces; ++v) {
          const auto weight = static_cast<float>((v == 300 ? label + above : label) / 64);
          std::fill_n(in.w.row(v), c.d, static_cast<float>(bf16(weight)));
        }
        expect_formula(
            [&](Lab& lab) {
              const Given given = run(lab, c, in);
              lab.give("losses", {given.totals.smoothed, given.totals.nll}, {.absolute = 0, .relative = 0.01});
              lab.give("correct", {given.totals.correct}, testing::kExact);
              EXPECT_TRUE(all_finite(lab.values(given.dx.whole)) && all_finite(lab.values(given.dw.whole)));
            },
            fmt::format("label's {}, {} above, smoothing {}", label, above, smoothing));
      }
    }
  }
}

TEST_F(ProjectedLossOp, NoLabels) {
  for (const float smoothing : {0.0F, 0.1F}) {
    const Case c{.rows = 40, .d = 64, .pieces = 512, .smoothing = smoothing};
    Inputs in(c);
    std::ranges::fill(in.labels, -1);
    expect_formula(
        [&](Lab& lab) {
          const Given given = run(lab, c, in);
          const LossTotals& sums = given.totals;
          lab.give("totals", {sums.smoothed, sums.nll, sums.correct, sums.tokens}, testing::kExact);
          lab.give("dx", given.dx, testing::kExact);
          lab.give("dw", given.dw, testing::kExact);
        },
        "no labels");
  }
}

TEST_F(ProjectedLossOp, BadNumbersShow) {
  for (const Device& device : testing::devices()) {
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (const bool in_x : {false, true}) {
        const Case c{.rows = 40, .d = 64, .pieces = 512};
        Inputs in(c);
        in.labels[5] = 77;
        (in_x ? in.x.row(5) : in.w.row(99))[3] = bad;
        Lab lab(*device.backend, device.types);
        const Given given = run(lab, c, in);
        EXPECT_FALSE(std::isfinite(given.totals.smoothed)) << bad << (in_x ? " in x" : " in w");
        EXPECT_FALSE(all_finite(lab.values(given.dw.whole))) << bad << (in_x ? " in x" : " in w");
      }
    }
  }
}

}  // namespace
}  // namespace tandem::backend
