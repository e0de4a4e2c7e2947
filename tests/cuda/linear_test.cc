#include <cmath>

#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Results;
using testing::Room;
using testing::Tolerance;

class CudaLinear : public testing::CudaTest {};

const StepState kState{.seed = 5, .step = 3, .first_source = 17, .first_target = 40};

struct Case {
  int64_t rows, in, out;
  bool bias = false;
  Activation activation = Activation::none;
  float rate = 0;
  int64_t margin = 0;
  bool accumulate = false;
  bool gate = false;
};

std::string describe(const Case& c) {
  return fmt::format("rows {} in {} out {} bias {} activation {} rate {} margin {} accumulate {} gate {}", c.rows, c.in,
                     c.out, c.bias, static_cast<int>(c.activation), c.rate, c.margin, c.accumulate, c.gate);
}

std::vector<Case> cases() {
  constexpr Activation kAll[] = {Activation::none, Activation::relu, Activation::gelu, Activation::swish};
  std::vector<Case> all;
  for (const int64_t rows : {0, 1, 31, 33, 1000}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{32, 32}, {64, 96}, {512, 128}, {33, 40}, {96, 33}}) {
      all.push_back({.rows = rows, .in = in, .out = out});
      all.push_back({.rows = rows, .in = in, .out = out, .bias = true, .activation = Activation::relu, .rate = 0.1F});
    }
  }
  for (const Activation activation : kAll) {
    for (const int64_t out : {256, 104, 37}) {
      for (const bool bias : {false, true}) {
        for (const float rate : {0.0F, 0.3F}) {
          for (const int64_t margin : {0, 3, 8}) {
            all.push_back({129, 64, out, bias, activation, rate, margin});
          }
          if (activation == Activation::relu) {
            all.push_back({129, 64, out, bias, activation, rate, 0, false, true});
          }
        }
      }
    }
  }
  all.push_back({.rows = 129, .in = 64, .out = 96, .accumulate = true});
  all.push_back({.rows = 33, .in = 40, .out = 1000, .margin = 8, .accumulate = true});
  all.push_back({.rows = 300, .in = 1000, .out = 1024});
  all.push_back({8000, 32, 2048, true, Activation::relu, 0.1F, 0, false, true});  // many rows
  for (const int64_t rows : {1, 127, 1000}) {  // whole tiles: relu and dropout inside the product
    all.push_back({rows, 128, 512, true, Activation::relu, 0.1F, 0, false, true});
    all.push_back({rows, 64, 320, true, Activation::relu, 0, 8, false, true});
  }
  all.push_back({8000, 64, 2048, true, Activation::relu, 0.1F, 0, false, true});  // several tiles for each block
  all.push_back({127, 64, 320, true, Activation::relu, 0.5F, 0, false, true});    // a mask without quick_keep_pair
  all.push_back({.rows = 64, .in = 64, .out = 8200, .bias = true});
  for (const int64_t rows : {3977, 6145, 6147, 6208}) {  // sums that cuBLASLt may split
    all.push_back({.rows = rows, .in = 64, .out = 128});
    all.push_back({.rows = rows, .in = 512, .out = 64});
  }
  return all;
}

Room gate_of(Lab& lab, const Case& c, int64_t cols) {
  const View gate = lab.poisoned_ints(c.rows, (cols + 31) / 32);
  return {gate, gate};
}

Results forward(Lab& lab, const Case& c) {
  const Room y = lab.poisoned(c.rows, c.out, c.margin), pre = lab.poisoned(c.rows, c.out, c.margin);
  const bool curved = c.activation == Activation::gelu || c.activation == Activation::swish;
  lab.backend().run(op::Linear{.y = y,
                               .pre = curved ? pre.inner : View{},
                               .gate = c.gate ? gate_of(lab, c, c.out).inner : View{},
                               .x = lab.random(c.rows, c.in, 1, 1, c.margin),
                               .w = lab.random(c.out, c.in, 2),
                               .bias = c.bias ? lab.random(1, c.out, 3).inner : View{},
                               .activation = c.activation,
                               .dropout = {c.rate, 9, Side::target, lab.put_struct(kState)}});
  Results results;
  lab.append(results, y);
  if (curved) {
    lab.append(results, pre);
  }
  return results;
}

constexpr int64_t kOut = 64;  // of the product behind h

// h = dropout(activation(x w1' + bias)) and the gradient of its argument, given that of h w2'.
Results backward_input(Lab& lab, const Case& c, bool column_sums, bool accumulate_sums = true) {
  const Dropout dropout{c.rate, 9, Side::target, lab.put_struct(kState)};
  const Room h = lab.poisoned(c.rows, c.out, c.margin), pre = lab.poisoned(c.rows, c.out, c.margin);
  const View gate = c.gate ? gate_of(lab, c, c.out).inner : View{};
  const bool curved = c.activation == Activation::gelu || c.activation == Activation::swish;
  if (c.activation != Activation::none) {
    lab.backend().run(op::Linear{.y = h,
                                 .pre = curved ? pre.inner : View{},
                                 .gate = gate,
                                 .x = lab.random(c.rows, c.in, 1),
                                 .w = lab.random(c.out, c.in, 2),
                                 .activation = c.activation,
                                 .dropout = dropout});
  }
  const Room sums = lab.random<float>(1, c.out, 11);
  const Room dx = c.accumulate ? lab.random(c.rows, c.out, 6, 1, c.margin) : lab.poisoned(c.rows, c.out, c.margin);
  lab.backend().run(op::LinearBackwardInput{.dx = dx,
                                            .column_sums = column_sums ? sums.inner : View{},
                                            .dy = lab.random(c.rows, kOut, 5, 1, c.margin),
                                            .w = lab.random(kOut, c.out, 7),
                                            .saved = c.activation == Activation::none ? View{}
                                                     : curved                         ? pre.inner
                                                                                      : h.inner,
                                            .gate = gate,
                                            .activation = c.activation,
                                            .dropout = c.accumulate ? Dropout{} : dropout,
                                            .accumulate = c.accumulate,
                                            .accumulate_sums = accumulate_sums});
  Results results = {1};  // no rows give zeros, and zeros alone are not compared
  lab.append(results, column_sums ? sums : dx);
  return results;
}

Results backward_weight(Lab& lab, const Case& c, bool accumulate) {
  const Room dw = lab.random<float>(c.out, c.in, 8, 1, c.margin), dbias = lab.random<float>(1, c.out, 9);
  lab.backend().run(op::LinearBackwardWeights{
      .gradients = testing::one(WeightGradient{.dw = dw,
                                               .dbias = c.bias ? dbias.inner : View{},
                                               .dy = lab.random(c.rows, c.out, 5, 1, c.margin),
                                               .x = lab.random(c.rows, c.in, 1, 1, c.margin)}),
      .accumulate = accumulate});
  Results results = {1};  // no rows give zeros, and zeros alone are not compared
  lab.append(results, dw);
  lab.append(results, dbias);
  return results;
}

// Two matrices on the same rows.
Results backward_weights(Lab& lab, const Case& first, const Case& second, bool accumulate) {
  std::vector<Room> rooms;
  std::vector<WeightGradient> gradients;
  for (const Case& c : {first, second}) {
    const auto seed = static_cast<uint32_t>(10 * rooms.size());
    rooms.push_back(lab.random<float>(c.out, c.in, seed + 8, 1, c.margin));
    rooms.push_back(lab.random<float>(1, c.out, seed + 9));
    gradients.push_back({rooms[rooms.size() - 2], c.bias ? rooms.back().inner : View{},
                         lab.random(first.rows, c.out, seed + 5, 1, c.margin),
                         lab.random(first.rows, c.in, seed + 1, 1, c.margin)});
  }
  lab.backend().run(op::LinearBackwardWeights{.gradients = gradients, .accumulate = accumulate});
  Results results = {1};  // no rows give zeros, and zeros alone are not compared
  for (const Room& room : rooms) {
    lab.append(results, room);
  }
  return results;
}

// A sum near 0 may fall on either side of relu's corner, which the absolute tolerance covers; dropped is dropped. The
// product, of magnitude up to 8, may be rounded to bf16 before the bias is added and again before dropout scales it.
TEST_F(CudaLinear, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    const bool zeros = c.activation != Activation::relu;
    expect_twins(
        [&](Lab& lab) { return forward(lab, c); },
        {.absolute = c.bias ? 1.6e-2 : 2e-3, .relative = c.rate > 0 ? 1.0 / 64 : 1.0 / 128, .exact_zeros = zeros},
        describe(c));
  }
}

TEST_F(CudaLinear, BackwardInput) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    expect_twins([&](Lab& lab) { return backward_input(lab, c, false); },
                 {.absolute = 2e-2, .relative = 1.0 / 64, .exact_zeros = c.rate > 0}, describe(c));
  }
}

// The elements are sums of kOut products of numbers uniform in [-1, 1]: of standard deviation sqrt(kOut) / 3, up to 12
// where dropout has scaled them. The GPU adds up what it has rounded to bf16 (half a step: at most 1/256 of an element,
// evenly spread), with dropout once before the scaling and once behind it; four standard deviations of that walk over
// the rows that are kept. A row that is missing changes columns by a whole element.
TEST_F(CudaLinear, ColumnSums) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    const double kept = c.accumulate ? 1 : 1 - static_cast<double>(c.rate);
    const double element = std::sqrt(static_cast<double>(kOut)) / 3 / kept;
    const double roundings = kept < 1 ? 2 : 1;
    const double walk = 4 * element / 256 / std::sqrt(3.0) * std::sqrt(roundings * kept * static_cast<double>(c.rows));
    for (const bool accumulate : {true, false}) {
      expect_twins([&](Lab& lab) { return backward_input(lab, c, true, accumulate); },
                   {.absolute = 1e-3 + walk, .relative = 1e-3}, describe(c));
    }
  }
}

// Sums are made in f32 and not rounded.
constexpr Tolerance kSums{.absolute = 1e-3, .relative = 1e-4};

TEST_F(CudaLinear, BackwardWeight) {
  for (const Case& c : cases()) {
    if (leaves_out()) {
      continue;
    }
    for (const bool accumulate : {true, false}) {
      expect_twins([&](Lab& lab) { return backward_weight(lab, c, accumulate); }, kSums, describe(c));
    }
  }
}

// The kernel of our own: tokens around the sizes of its stages and splits, parts of its tiles, tiles of both sizes,
// tiles that two blocks share and pairs of tiles, whole ones and with one missing, margins that are whole vectors; and
// what it does not take: no rows, more rows or tiles, other margins and sizes.
std::vector<std::pair<Case, Case>> weight_pairs() {
  std::vector<std::pair<Case, Case>> all;
  for (const int64_t rows : {1, 65, 193, 3977}) {
    all.push_back({{.rows = rows, .in = 2048, .out = 512, .bias = true}, {.rows = rows, .in = 512, .out = 2048}});
    all.push_back(
        {{.rows = rows, .in = 448, .out = 1600, .margin = 16}, {.rows = rows, .in = 512, .out = 1728, .margin = 8}});
  }
  for (const int64_t rows : {0, 1, 2, 63, 64, 65, 129, 193, 1000, 3977}) {
    all.push_back(
        {{.rows = rows, .in = 64, .out = 64}, {.rows = rows, .in = 192, .out = 320, .bias = true, .margin = 8}});
    all.push_back({{.rows = rows, .in = 512, .out = 512}, {.rows = rows, .in = 512, .out = 512, .bias = true}});
    all.push_back({{.rows = rows, .in = 512, .out = 512}, {.rows = rows, .in = 512, .out = 1536}});
    all.push_back({{.rows = rows, .in = 448, .out = 1216, .margin = 16}, {.rows = rows, .in = 320, .out = 960}});
  }
  all.push_back({{.rows = 8192, .in = 64, .out = 128}, {.rows = 8192, .in = 128, .out = 64}});
  all.push_back({{.rows = 8193, .in = 64, .out = 128}, {.rows = 8193, .in = 128, .out = 64}});
  all.push_back({{.rows = 129, .in = 2048, .out = 512}, {.rows = 129, .in = 512, .out = 2304}});
  all.push_back({{.rows = 129, .in = 128, .out = 64, .margin = 3}, {.rows = 129, .in = 128, .out = 64}});
  all.push_back({{.rows = 129, .in = 128, .out = 64}, {.rows = 129, .in = 33, .out = 40}});
  return all;
}

TEST_F(CudaLinear, BackwardWeights) {
  for (const auto& [first, second] : weight_pairs()) {
    if (leaves_out()) {
      continue;
    }
    for (const bool accumulate : {true, false}) {
      expect_twins([&](Lab& lab) { return backward_weights(lab, first, second, accumulate); }, kSums,
                   describe(first) + " and " + describe(second));
    }
  }
}

}  // namespace
}  // namespace tandem::backend
