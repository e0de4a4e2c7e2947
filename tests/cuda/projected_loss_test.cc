#include <algorithm>
#include <cmath>

#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Matrix;
using testing::Room;

class CudaProjectedLoss : public testing::CudaTest {};

const StepState kState{.loss_scale = 0.125F};

struct Case {
  int64_t rows, d, pieces;
  float smoothing = 0.1F;
  bool accumulate = false;
  double logits = 4;  // how large they are
  int64_t margin = 0;
};

std::string describe(const Case& c) {
  return fmt::format("rows {} d {} pieces {} smoothing {} accumulate {} logits {} margin {}", c.rows, c.d, c.pieces,
                     c.smoothing, c.accumulate, c.logits, c.margin);
}

// Multiples of 1/4, so that logits are sums without rounding, and often the same.
template <class T = bf16>
Matrix<T> coarse(int64_t rows, int64_t cols, uint32_t seed, double scale) {
  auto matrix = Matrix<T>::random(rows, cols, seed, 2);
  for (T& value : matrix.data) {
    value = static_cast<T>(static_cast<float>(std::round(static_cast<double>(value)) / 4 * scale));
  }
  return matrix;
}

// Any label, none, the likeliest piece (the first of them, and the last).
std::vector<int32_t> labels_of(const Case& c, Matrix<bf16>& x, Matrix<bf16>& w) {
  PhiloxStream random(5, 2);
  std::vector<int32_t> labels;
  for (int64_t r = 0; r < c.rows; ++r) {
    int32_t first = 0, last = 0;
    float most = -INFINITY;
    for (int32_t v = 0; r % 4 < 2 && v < c.pieces; ++v) {
      float logit = 0;
      for (int64_t i = 0; i < c.d; ++i) {
        logit += static_cast<float>(x.row(r)[i]) * static_cast<float>(w.row(v)[i]);
      }
      const float rounded = bf16(logit);
      first = rounded > most ? v : first;
      last = rounded >= most ? v : last;
      most = std::max(most, rounded);
    }
    const auto any = static_cast<int32_t>(random.below(static_cast<uint64_t>(c.pieces)));
    labels.push_back(r % 4 == 0 ? first : r % 4 == 1 ? last : r % 12 == 3 ? -1 : any);
  }
  return labels;
}

struct Outcome {
  LossTotals totals;
  std::vector<bf16> dx;
  std::vector<float> dw;
};

struct Inputs {
  explicit Inputs(const Case& c)
      : x(coarse(c.rows, c.d, 1, 1)),
        w(coarse(c.pieces, c.d, 2, std::exp2(std::round(std::log2(8 * c.logits / std::sqrt(double(c.d))))))),
        labels(labels_of(c, x, w)) {}

  Matrix<bf16> x, w;
  std::vector<int32_t> labels;
};

Outcome run(Lab& lab, const Case& c, const Inputs& in) {
  const Room dx = lab.poisoned(c.rows, c.d, c.margin), logits = lab.poisoned(c.rows + 8, c.pieces, c.margin);
  const Room dw = c.accumulate ? lab.random<float>(c.pieces, c.d, 4, 0.01) : lab.poisoned<float>(c.pieces, c.d);
  LossTotals* totals = lab.put_struct(LossTotals{.smoothed = 1, .nll = 2, .correct = 3, .tokens = 4});
  lab.backend().run(op::ProjectedLoss{.totals = totals,
                                      .dx = dx,
                                      .dw = dw,
                                      .logits = logits,
                                      .x = lab.put(in.x.data, c.rows, c.d),
                                      .w = lab.put(in.w.data, c.pieces, c.d),
                                      .labels = lab.put(in.labels),
                                      .smoothing = c.smoothing,
                                      .state = lab.put_struct(kState),
                                      .accumulate = c.accumulate});
  return {lab.get(totals), lab.values<bf16>(dx.whole), lab.values<float>(dw.whole)};
}

// |a - e| / |e|; NaN where there is one.
template <class T>
double difference(const std::vector<T>& actual, const std::vector<T>& expected) {
  double sum = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]);
    sum += (a - e) * (a - e);
    norm += e * e;
  }
  return std::sqrt(sum / norm);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
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

TEST_F(CudaProjectedLoss, LossAndGradients) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    const std::string what = describe(c);
    const Inputs in(c);
    Lab device(*gpu()), again(*gpu()), host(cpu());
    const Outcome actual = run(device, c, in), twice = run(again, c, in), expected = run(host, c, in);
    EXPECT_EQ(actual.totals.correct, expected.totals.correct) << what;
    EXPECT_EQ(actual.totals.tokens, expected.totals.tokens) << what;
    EXPECT_NEAR(actual.totals.smoothed, expected.totals.smoothed, 1e-5 * std::fabs(expected.totals.smoothed)) << what;
    EXPECT_NEAR(actual.totals.nll, expected.totals.nll, 1e-5 * std::fabs(expected.totals.nll)) << what;
    EXPECT_LE(difference(actual.dx, expected.dx), 1e-2) << what;
    EXPECT_LE(difference(actual.dw, expected.dw), 1e-2) << what;
    EXPECT_TRUE(same_bits(actual.dx, twice.dx) && same_bits(actual.dw, twice.dw) &&
                std::memcmp(&actual.totals, &twice.totals, sizeof(LossTotals)) == 0)
        << what << ": other bits the second time";
  }
}

template <class T>
bool all_finite(const std::vector<T>& values) {
  return std::ranges::all_of(values, [](T value) { return std::isfinite(static_cast<float>(value)); });
}

// A piece's logit above what an exponential holds: `label` is the label's and those of all others but one.
TEST_F(CudaProjectedLoss, HugeLogits) {
  for (const double label : {80.0, 20000.0}) {
    for (const double above : {20.0, 100.0, 170.0, 920.0}) {
      for (const float smoothing : {0.0F, 0.1F}) {
        const Case c{.rows = 40, .d = 64, .pieces = 512, .smoothing = smoothing};
        const std::string what = fmt::format("label's {}, {} above, smoothing {}", label, above, smoothing);
        Inputs in(c);
        for (int64_t r = 0; r < c.rows; ++r) {
          std::fill_n(in.x.row(r), c.d, bf16(1.0F));
          in.labels[static_cast<size_t>(r)] = static_cast<int32_t>(r);
        }
        for (int64_t v = 0; v < c.pieces; ++v) {
          std::fill_n(in.w.row(v), c.d, bf16(static_cast<float>((v == 300 ? label + above : label) / 64)));
        }
        Lab device(*gpu()), host(cpu());
        const Outcome actual = run(device, c, in), expected = run(host, c, in);
        EXPECT_NEAR(actual.totals.nll, expected.totals.nll, 0.01 * expected.totals.nll) << what;
        EXPECT_NEAR(actual.totals.smoothed, expected.totals.smoothed, 0.01 * expected.totals.smoothed) << what;
        EXPECT_EQ(actual.totals.correct, expected.totals.correct) << what;
        EXPECT_TRUE(all_finite(actual.dw) && all_finite(actual.dx)) << what;
      }
    }
  }
}

TEST_F(CudaProjectedLoss, NoLabels) {
  for (const float smoothing : {0.0F, 0.1F}) {
    const Case c{.rows = 40, .d = 64, .pieces = 512, .smoothing = smoothing};
    Inputs in(c);
    std::ranges::fill(in.labels, -1);
    Lab lab(*gpu());
    const Outcome outcome = run(lab, c, in);
    EXPECT_EQ(outcome.totals.smoothed, 1);  // what was there before
    EXPECT_EQ(outcome.totals.nll, 2);
    EXPECT_EQ(outcome.totals.correct, 3);
    EXPECT_EQ(outcome.totals.tokens, 4);
    EXPECT_TRUE(std::ranges::all_of(outcome.dx, [](bf16 value) { return static_cast<float>(value) == 0; }));
    EXPECT_TRUE(std::ranges::all_of(outcome.dw, [](float value) { return value == 0; }));
  }
}

TEST_F(CudaProjectedLoss, BadNumbersShow) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const bool in_x : {false, true}) {
      const Case c{.rows = 40, .d = 64, .pieces = 512};
      Inputs in(c);
      in.labels[5] = 77;
      (in_x ? in.x.row(5) : in.w.row(99))[3] = bf16(bad);
      Lab lab(*gpu());
      const Outcome outcome = run(lab, c, in);
      EXPECT_FALSE(std::isfinite(outcome.totals.smoothed)) << bad << (in_x ? " in x" : " in w");
      EXPECT_FALSE(all_finite(outcome.dw)) << bad << (in_x ? " in x" : " in w");
    }
  }
}

}  // namespace
}  // namespace tandem::backend
