#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Bound;
using testing::Lab;
using testing::Room;

class ResidualNormOps : public testing::OpTest {};

const StepState kState{.seed = 99, .step = 4, .first_source = 6, .first_target = 5};

struct Case {
  int64_t rows, cols;
  bool branch = true;
  bool keep_sum = true;
  bool dsum = true;
  float rate = 0;
  int64_t margin = 0;
  bool bias = false;  // the gradient of one before the branch is wanted
  bool accumulate = true;
};

std::string describe(const Case& c) {
  return fmt::format("rows {} cols {} branch {} sum {} dsum {} rate {} margin {} bias {} accumulate {}", c.rows, c.cols,
                     c.branch, c.keep_sum, c.dsum, c.rate, c.margin, c.bias, c.accumulate);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t rows : {0, 1, 31, 33, 1000}) {
    for (const int64_t cols : {1, 32, 33, 96, 512, 1000, 1024}) {
      all.push_back({.rows = rows, .cols = cols, .rate = 0.3F});
      all.push_back({.rows = rows, .cols = cols, .rate = 0.3F, .bias = true, .accumulate = false});
    }
  }
  for (const int64_t cols : {96, 512, 1000, 1536, 3000, 8192}) {
    all.push_back({.rows = 33, .cols = cols});
    all.push_back({.rows = 33, .cols = cols, .branch = false});
    all.push_back({.rows = 33, .cols = cols, .keep_sum = false, .rate = 0.3F});
    all.push_back({.rows = 33, .cols = cols, .dsum = false, .rate = 0.3F});
    all.push_back({.rows = 33, .cols = cols, .branch = false, .dsum = false});
    all.push_back({.rows = 33, .cols = cols, .rate = 0.3F, .margin = 8});
    all.push_back({.rows = 33, .cols = cols, .rate = 0.3F, .margin = 3});
    all.push_back({.rows = 333, .cols = cols, .bias = true});
    all.push_back({.rows = 333, .cols = cols, .rate = 0.3F, .margin = 3, .bias = true});
  }
  // Several rounds of the grid; in the last one, some have no row.
  all.push_back({.rows = 2200, .cols = 512, .rate = 0.1F});
  all.push_back({.rows = 5000, .cols = 512, .rate = 0.1F});
  all.push_back({.rows = 5000, .cols = 512, .rate = 0.1F, .bias = true});
  all.push_back({.rows = 5000, .cols = 504, .dsum = false, .rate = 0.1F, .margin = 8, .bias = true});
  all.push_back({.rows = 1500, .cols = 1024, .rate = 0.1F, .bias = true});
  all.push_back({.rows = 1200, .cols = 2048, .rate = 0.1F, .bias = true});
  all.push_back({.rows = 3001, .cols = 1024, .rate = 0.1F});
  all.push_back({.rows = 3001, .cols = 768, .branch = false});
  return all;
}

double products(const Case& c) { return 16 * static_cast<double>(c.rows * c.cols); }

// A sum of which dropout has scaled a part, or that holds a product, may be rounded to bf16 the other way. That moves
// what is normed by one step of the sum, which is about one of the normed value before beta is added, so beta is small
// here.
constexpr double kBeta = 0.125;
constexpr Bound kNormed{.absolute = 8e-3};

TEST_F(ResidualNormOps, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out(products(c))) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          const Room sum = lab.c().poisoned(c.rows, c.cols, c.margin),
                     normed = lab.c().poisoned(c.rows, c.cols, c.margin), statistics = lab.m().poisoned(c.rows, 2);
          lab.backend().run(
              op::ResidualNorm{.sum = c.keep_sum ? sum.inner : View{},
                               .normed = normed,
                               .statistics = statistics,
                               .residual = lab.c().random(c.rows, c.cols, 1, 2, c.margin),
                               .branch = c.branch ? lab.c().random(c.rows, c.cols, 2, 1, c.margin).inner : View{},
                               .gamma = lab.m().random(1, c.cols, 5),
                               .beta = lab.m().random(1, c.cols, 6, kBeta),
                               .dropout = {c.rate, 12, Side::target, lab.put_struct(kState)}});
          if (c.keep_sum) {
            lab.give("sum", sum);
          }
          lab.give("normed", normed, c.rate > 0 ? kNormed : Bound{});
          lab.give("statistics", statistics, {.absolute = 2e-3, .relative = 1.0 / 128});
        },
        describe(c));
  }
}

// With the sum written over the residual.
TEST_F(ResidualNormOps, ForwardInPlace) {
  for (const int64_t cols : {33, 512, 1000, 1024, 3000}) {
    expect_formula(
        [&](Lab& lab) {
          const Room residual = lab.c().random(70, cols, 1, 2), normed = lab.c().poisoned(70, cols);
          lab.backend().run(op::ResidualNorm{.sum = residual,
                                             .normed = normed,
                                             .statistics = lab.m().poisoned(70, 2),
                                             .residual = residual,
                                             .branch = lab.c().random(70, cols, 2),
                                             .gamma = lab.m().random(1, cols, 5),
                                             .beta = lab.m().random(1, cols, 6)});
          lab.give("sum", residual);
          lab.give("normed", normed);
        },
        fmt::format("cols {}", cols));
  }
}

// The rows' own statistics in f32, so that all begin with the same ones.
std::vector<float> statistics_of(const Case& c) {
  auto sum = testing::Matrix<float>::random(c.rows, c.cols + 2 * c.margin, 1, 2);
  std::vector<float> statistics;
  for (int64_t r = 0; r < c.rows; ++r) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < c.cols; ++i) {
      const auto value = static_cast<double>(sum.row(r)[c.margin + i]);
      total += value;
      squares += value * value;
    }
    const double mean = total / static_cast<double>(c.cols);
    statistics.push_back(static_cast<float>(mean));
    statistics.push_back(
        static_cast<float>(1 / std::sqrt(std::fmax(squares / static_cast<double>(c.cols) - mean * mean, 0) + 1e-6)));
  }
  return statistics;
}

enum class Over : uint8_t { nothing, dsum, dnormed };

void backward(Lab& lab, const Case& c, Over over) {
  const Room sum = lab.c().random(c.rows, c.cols, 1, 2, c.margin);
  const Room dnormed = lab.c().random(c.rows, c.cols, 3, 1, c.margin),
             dsum = lab.c().random(c.rows, c.cols, 4, 1, c.margin);
  const Room dresidual = over == Over::dsum      ? dsum
                         : over == Over::dnormed ? dnormed
                                                 : lab.c().poisoned(c.rows, c.cols, c.margin);
  const Room dbranch = lab.c().poisoned(c.rows, c.cols, c.margin);
  const Room dgamma = lab.g().random(1, c.cols, 7), dbeta = lab.g().random(1, c.cols, 8),
             dbias = lab.g().random(1, c.cols, 9);
  lab.backend().run(op::ResidualNormBackward{.dresidual = dresidual,
                                             .dbranch = c.branch ? dbranch.inner : View{},
                                             .dgamma = dgamma,
                                             .dbeta = dbeta,
                                             .dbias = c.bias ? dbias.inner : View{},
                                             .dnormed = dnormed,
                                             .dsum = c.dsum ? dsum.inner : View{},
                                             .sum = sum,
                                             .statistics = lab.put_as(lab.types().m, statistics_of(c), c.rows, 2),
                                             .gamma = lab.m().random(1, c.cols, 5),
                                             .dropout = {c.rate, 12, Side::target, lab.put_struct(kState)},
                                             .accumulate = c.accumulate});
  lab.give("dresidual", dresidual, {.exact_zeros = c.cols > 1});
  if (c.branch) {
    lab.give("dbranch", dbranch, {.exact_zeros = c.cols > 1, .zeros = c.cols == 1});
  }
  const Bound sums{.absolute = 2e-3, .relative = 1.0 / 128, .zeros = !c.accumulate && (c.rows == 0 || c.cols == 1)};
  lab.give("dgamma", dgamma, sums);
  lab.give("dbeta", dbeta, sums);
  lab.give("dbias", dbias, sums);
}

TEST_F(ResidualNormOps, Backward) {
  for (const Case& c : cases()) {
    if (leaves_out(products(c))) {
      continue;
    }
    expect_formula([&](Lab& lab) { backward(lab, c, Over::nothing); }, describe(c));
  }
}

TEST_F(ResidualNormOps, GradientsMayBeWrittenOverTheirInputs) {
  for (const Over over : {Over::dsum, Over::dnormed}) {
    for (const int64_t cols : {33, 512, 1024, 3000}) {
      for (const int64_t rows : {333, 2500}) {
        const Case c{.rows = rows, .cols = cols, .rate = 0.3F};
        if (leaves_out(products(c))) {
          continue;
        }
        expect_formula([&](Lab& lab) { backward(lab, c, over); }, describe(c));
      }
    }
  }
}

struct EndCase {
  int64_t rows, cols, in;
  bool bias = true;
  float rate = 0.3F;
  int64_t margin = 0;
  bool over = false;  // the sum is written over the residual
};

// The kernel of our own takes many rows, so that all multiprocessors have tiles: one round of them, whole and with rows
// missing, two and three rounds, both widths. And what it does not take: few rows, other widths and margins, inner
// dimensions that are not whole steps, a rate of one half or one.
std::vector<EndCase> end_cases() {
  std::vector<EndCase> all;
  for (const int64_t rows : {8321, 8447, 8448, 16800, 25024}) {
    all.push_back({.rows = rows, .cols = 512, .in = 128});
  }
  for (const float rate : {0.0F, 0.1F, 0.3F}) {
    all.push_back({.rows = 8400, .cols = 512, .in = 512, .bias = false, .rate = rate, .margin = 8});
    all.push_back({.rows = 8400, .cols = 512, .in = 2048, .rate = rate, .over = true});
    all.push_back({.rows = 3830, .cols = 1024, .in = 1024, .rate = rate, .margin = 16});
  }
  all.push_back({.rows = 3840, .cols = 1024, .in = 64, .bias = false, .over = true});
  all.push_back({.rows = 7700, .cols = 1024, .in = 192});
  for (const int64_t rows : {0, 1, 100, 4032, 8449}) {
    all.push_back({.rows = rows, .cols = 512, .in = 64});
  }
  for (const float rate : {0.5F, 1.0F}) {
    all.push_back({.rows = 8448, .cols = 512, .in = 64, .rate = rate});
  }
  all.push_back({.rows = 8448, .cols = 512, .in = 72});
  all.push_back({.rows = 8448, .cols = 512, .in = 64, .margin = 3});
  all.push_back({.rows = 8448, .cols = 256, .in = 64});
  all.push_back({.rows = 800, .cols = 500, .in = 65});
  all.push_back({.rows = 70, .cols = 96, .in = 65, .margin = 3, .over = true});
  all.push_back({.rows = 70, .cols = 96, .in = 65, .bias = false});
  return all;
}

TEST_F(ResidualNormOps, WithTheProductBefore) {
  for (const EndCase& c : end_cases()) {
    if (leaves_out(static_cast<double>(c.rows * c.cols * c.in))) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          const Room residual = lab.c().random(c.rows, c.cols, 1, 2, c.margin),
                     normed = lab.c().poisoned(c.rows, c.cols, c.margin),
                     sum = c.over ? residual : lab.c().poisoned(c.rows, c.cols, c.margin),
                     statistics = lab.m().poisoned(c.rows, 2), gamma = lab.m().random(1, c.cols, 5),
                     beta = lab.m().random(1, c.cols, 6, kBeta);
          lab.backend().run(
              op::LinearResidualNorm{.sum = sum,
                                     .normed = normed,
                                     .statistics = statistics,
                                     .branch = lab.c().poisoned(c.rows, c.cols),
                                     .x = lab.c().random(c.rows, c.in, 3, 1, c.margin),
                                     .w = lab.c().random(c.cols, c.in, 4, 0.1 / std::sqrt(static_cast<double>(c.in))),
                                     .bias = c.bias ? lab.c().random(1, c.cols, 7, 0.1).inner : View{},
                                     .residual = residual,
                                     .gamma = gamma,
                                     .beta = beta,
                                     .dropout = {c.rate, 12, Side::target, lab.put_struct(kState)}});
          lab.give("sum", sum);
          lab.give("normed", normed, kNormed);
          lab.give("statistics", statistics);
          // Of the very sum that the device has, it is what residual_norm makes of it.
          const Room again = lab.c().poisoned(c.rows, c.cols, c.margin);
          lab.backend().run(op::ResidualNorm{.normed = again,
                                             .statistics = lab.m().poisoned(c.rows, 2),
                                             .residual = sum,
                                             .gamma = gamma,
                                             .beta = beta});
          EXPECT_TRUE(c.rows == 0 ||
                      testing::all_close(lab.values(normed.whole), lab.values(again.whole), 1e-4, 1.0 / 128));
        },
        fmt::format("rows {} cols {} in {} bias {} rate {} margin {} over {}", c.rows, c.cols, c.in, c.bias, c.rate,
                    c.margin, c.over));
  }
}

}  // namespace
}  // namespace tandem::backend
