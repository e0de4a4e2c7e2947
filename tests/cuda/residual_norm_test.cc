#include "cuda/device.h"

namespace tandem {
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
  for (const int64_t cols : {96, 512, 1536, 3000, 8192}) {
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
  lab.backend().residual_norm(
      c.keep_sum ? sum.inner : View{}, normed, statistics, lab.random(c.rows, c.cols, 1, 2, c.margin),
      c.branch ? lab.random(c.rows, c.cols, 2, 1, c.margin).inner : View{}, lab.random<float>(1, c.cols, 5),
      lab.random<float>(1, c.cols, 6), {c.rate, 12, Side::target, state});
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
  lab.backend().residual_norm_backward(dresidual, c.branch ? dbranch.inner : View{},
                                       {dgamma, dbeta, c.bias ? dbias.inner : View{}, c.accumulate}, dnormed,
                                       c.dsum ? dsum.inner : View{}, sum, statistics, lab.random<float>(1, c.cols, 5),
                                       {c.rate, 12, Side::target, state});
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
    expect_twins([&](Lab& lab) { return forward(lab, c); }, {.absolute = 2e-3}, describe(c));
  }
}

TEST_F(CudaResidualNorm, Backward) {
  for (const Case& c : cases()) {
    expect_twins([&](Lab& lab) { return backward(lab, c, Over::nothing); },
                 {.absolute = 2e-3, .exact_zeros = c.cols > 1}, describe(c));
  }
}

TEST_F(CudaResidualNorm, GradientsMayBeWrittenOverTheirInputs) {
  for (const Over over : {Over::dsum, Over::dnormed}) {
    for (const int64_t cols : {33, 512, 1024, 3000}) {
      for (const int64_t rows : {333, 2500}) {
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
          lab.backend().residual_norm(residual, normed, lab.poisoned<float>(100, 2), residual, lab.random(100, cols, 2),
                                      lab.random<float>(1, cols, 5), lab.random<float>(1, cols, 6), {});
          Results results;
          lab.append(results, residual);
          lab.append(results, normed);
          return results;
        },
        {.absolute = 2e-3}, fmt::format("cols {}", cols));
  }
}

}  // namespace
}  // namespace tandem
