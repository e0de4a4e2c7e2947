#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Results;
using testing::Room;

class CudaResidualNorm : public testing::CudaTest {};

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

Results forward(Lab& lab, const Case& c) {
  const StepState* state = lab.put_struct(kState);
  const Room sum = lab.poisoned(c.rows, c.cols, c.margin), normed = lab.poisoned(c.rows, c.cols, c.margin),
             statistics = lab.poisoned<float>(c.rows, 2);
  lab.backend().run(op::ResidualNorm{.sum = c.keep_sum ? sum.inner : View{},
                                     .normed = normed,
                                     .statistics = statistics,
                                     .residual = lab.random(c.rows, c.cols, 1, 2, c.margin),
                                     .branch = c.branch ? lab.random(c.rows, c.cols, 2, 1, c.margin).inner : View{},
                                     .gamma = lab.random<float>(1, c.cols, 5),
                                     .beta = lab.random<float>(1, c.cols, 6),
                                     .dropout = {c.rate, 12, Side::target, state}});
  Results results;
  lab.append(results, normed);
  lab.append(results, statistics);
  if (c.keep_sum) {
    lab.append(results, sum);
  }
  return results;
}

// The rows' own statistics, in f32, so that both twins begin with the same ones.
std::vector<float> statistics_of(const std::vector<bf16>& sum, const Case& c) {
  std::vector<float> statistics;
  const int64_t stride = c.cols + 2 * c.margin;
  for (int64_t r = 0; r < c.rows; ++r) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < c.cols; ++i) {
      const double value = static_cast<double>(static_cast<float>(sum[static_cast<size_t>(r * stride + c.margin + i)]));
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

Results backward(Lab& lab, const Case& c, Over over) {
  const StepState* state = lab.put_struct(kState);
  const Room sum = lab.random(c.rows, c.cols, 1, 2, c.margin);
  const View statistics = lab.put(statistics_of(lab.values<bf16>(sum.whole), c), c.rows, 2);
  const Room dnormed = lab.random(c.rows, c.cols, 3, 1, c.margin), dsum = lab.random(c.rows, c.cols, 4, 1, c.margin);
  const Room dresidual = over == Over::dsum      ? dsum
                         : over == Over::dnormed ? dnormed
                                                 : lab.poisoned(c.rows, c.cols, c.margin);
  const Room dbranch = lab.poisoned(c.rows, c.cols, c.margin);
  const Room dgamma = lab.random<float>(1, c.cols, 7), dbeta = lab.random<float>(1, c.cols, 8),
             dbias = lab.random<float>(1, c.cols, 9);
  lab.backend().run(op::ResidualNormBackward{.dresidual = dresidual,
                                             .dbranch = c.branch ? dbranch.inner : View{},
                                             .dgamma = dgamma,
                                             .dbeta = dbeta,
                                             .dbias = c.bias ? dbias.inner : View{},
                                             .dnormed = dnormed,
                                             .dsum = c.dsum ? dsum.inner : View{},
                                             .sum = sum,
                                             .statistics = statistics,
                                             .gamma = lab.random<float>(1, c.cols, 5),
                                             .dropout = {c.rate, 12, Side::target, state},
                                             .accumulate = c.accumulate});
  Results results = {1};  // no rows give zeros, and zeros alone are not compared
  lab.append(results, dresidual);
  if (c.branch) {
    lab.append(results, dbranch);
  }
  lab.append(results, dgamma);
  lab.append(results, dbeta);
  lab.append(results, dbias);
  return results;
}

TEST_F(CudaResidualNorm, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    expect_twins([&](Lab& lab) { return forward(lab, c); }, {.absolute = 2e-3}, describe(c));
  }
}

TEST_F(CudaResidualNorm, Backward) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    expect_twins([&](Lab& lab) { return backward(lab, c, Over::nothing); },
                 {.absolute = 2e-3, .exact_zeros = c.cols > 1}, describe(c));
  }
}

TEST_F(CudaResidualNorm, GradientsMayBeWrittenOverTheirInputs) {
  for (const Over over : {Over::dsum, Over::dnormed}) {
    for (const int64_t cols : {33, 512, 1024, 3000}) {
      for (const int64_t rows : {333, 2500}) {
        if (leaves_out()) {
          continue;
        }
        const Case c{.rows = rows, .cols = cols, .rate = 0.3F};
        expect_twins([&](Lab& lab) { return backward(lab, c, over); }, {.absolute = 2e-3, .exact_zeros = true},
                     describe(c));
      }
    }
  }
}

TEST_F(CudaResidualNorm, TheSumMayBeWrittenOverTheResidual) {
  for (const int64_t cols : {33, 512, 1024}) {
    expect_twins(
        [&](Lab& lab) {
          const Room residual = lab.random(100, cols, 1, 2), normed = lab.poisoned(100, cols);
          lab.backend().run(op::ResidualNorm{.sum = residual,
                                             .normed = normed,
                                             .statistics = lab.poisoned<float>(100, 2),
                                             .residual = residual,
                                             .branch = lab.random(100, cols, 2),
                                             .gamma = lab.random<float>(1, cols, 5),
                                             .beta = lab.random<float>(1, cols, 6)});
          Results results;
          lab.append(results, residual);
          lab.append(results, normed);
          return results;
        },
        {.absolute = 2e-3}, fmt::format("cols {}", cols));
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
  return all;
}

// The sum, which is that of the other twin, and what is normed, which is what residual_norm makes of this very sum: a
// sum that is rounded the other way may move a normed value near 0 by any number of its own steps.
Results end(Lab& lab, const EndCase& c, Results& own) {
  const Room residual = lab.random(c.rows, c.cols, 1, 2, c.margin), normed = lab.poisoned(c.rows, c.cols, c.margin),
             sum = c.over ? residual : lab.poisoned(c.rows, c.cols, c.margin),
             statistics = lab.poisoned<float>(c.rows, 2);
  const Room gamma = lab.random<float>(1, c.cols, 5), beta = lab.random<float>(1, c.cols, 6);
  lab.backend().run(op::LinearResidualNorm{.sum = sum,
                                           .normed = normed,
                                           .statistics = statistics,
                                           .branch = lab.poisoned(c.rows, c.cols),
                                           .x = lab.random(c.rows, c.in, 3, 1, c.margin),
                                           .w = lab.random(c.cols, c.in, 4, 0.1 / std::sqrt(static_cast<double>(c.in))),
                                           .bias = c.bias ? lab.random(1, c.cols, 7, 0.1).inner : View{},
                                           .residual = residual,
                                           .gamma = gamma,
                                           .beta = beta,
                                           .dropout = {c.rate, 12, Side::target, lab.put_struct(kState)}});
  const Room normed_again = lab.poisoned(c.rows, c.cols, c.margin), statistics_again = lab.poisoned<float>(c.rows, 2);
  lab.backend().run(op::ResidualNorm{
      .normed = normed_again, .statistics = statistics_again, .residual = sum, .gamma = gamma, .beta = beta});
  Results again, results;
  lab.append(own, normed);
  lab.append(own, statistics);
  lab.append(again, normed_again);
  lab.append(again, statistics_again);
  EXPECT_TRUE(c.rows == 0 || testing::all_close(own, again, 1e-4, 1.0 / 128));
  lab.append(results, sum);
  return results;
}

TEST_F(CudaResidualNorm, WithTheProductBefore) {
  for (const EndCase& c : end_cases()) {
    if (leaves_out()) {
      continue;
    }
    const std::string what = fmt::format("rows {} cols {} in {} bias {} rate {} margin {} over {}", c.rows, c.cols,
                                         c.in, c.bias, c.rate, c.margin, c.over);
    std::deque<Results> normed;
    expect_twins([&](Lab& lab) { return end(lab, c, normed.emplace_back()); }, {.absolute = 2e-3}, what);
    EXPECT_TRUE(normed[0].size() == normed[1].size() &&
                std::memcmp(normed[0].data(), normed[1].data(), normed[0].size() * sizeof(double)) == 0)
        << what << ": other bits the second time";
  }
}

}  // namespace
}  // namespace tandem::backend
