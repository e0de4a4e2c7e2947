#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Bound;
using testing::Lab;
using testing::Room;

class LinearOps : public testing::OpTest {};

const StepState kState{.seed = 5, .step = 3, .first_source = 17, .first_target = 40};

struct Case {
  int64_t rows, in, out;
  bool bias = false;
  Activation activation = Activation::none;
  float rate = 0;
  int64_t margin = 0;
  bool accumulate = false;
  bool gate = false;
  bool pre = false;  // also where the activation does not need it; a GPU does not write it then

  bool curved() const { return activation == Activation::gelu || activation == Activation::swish; }
  bool with_pre() const { return curved() || (pre && !testing::devices()[0].gpu); }
  bool masked() const { return activation != Activation::none || rate > 0; }
  double products() const { return static_cast<double>((rows + 16) * in * out); }  // and their making
};

std::string describe(const Case& c) {
  return fmt::format("rows {} in {} out {} bias {} activation {} rate {} margin {} accumulate {} gate {} pre {}",
                     c.rows, c.in, c.out, c.bias, static_cast<int>(c.activation), c.rate, c.margin, c.accumulate,
                     c.gate, c.pre);
}

std::vector<Case> cases() {
  constexpr Activation kAll[] = {Activation::none, Activation::relu, Activation::gelu, Activation::swish};
  std::vector<Case> all;
  for (const int64_t rows : {0, 1, 15, 31, 33, 1000}) {
    for (const auto& [in, out] :
         {std::pair<int64_t, int64_t>{32, 32}, {64, 96}, {512, 128}, {33, 40}, {96, 33}, {1, 1}, {5, 515}}) {
      all.push_back({.rows = rows, .in = in, .out = out});
      if (out > 1) {  // of one column, all may be zeros
        all.push_back({.rows = rows, .in = in, .out = out, .bias = true, .activation = Activation::relu, .rate = 0.1F});
      }
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
    all.push_back({.rows = 33,
                   .in = 37,
                   .out = 29,
                   .bias = true,
                   .activation = activation,
                   .rate = 0.3F,
                   .margin = 3,
                   .accumulate = true,
                   .pre = true});
    all.push_back({.rows = 33, .in = 37, .out = 29, .activation = activation, .accumulate = true, .pre = true});
  }
  all.push_back({.rows = 129, .in = 64, .out = 96, .accumulate = true});
  all.push_back({.rows = 33, .in = 40, .out = 1000, .margin = 8, .accumulate = true});
  all.push_back({.rows = 300, .in = 1000, .out = 1024});
  all.push_back({.rows = 1100, .in = 20, .out = 14, .bias = true});               // a CPU's segments of tokens
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

View gate_of(Lab& lab, const Case& c) { return c.gate ? lab.poisoned_ints(c.rows, (c.out + 31) / 32) : View{}; }

// A sum near 0 may fall on either side of relu's corner, which the absolute tolerance covers; dropped is dropped. The
// product, of magnitude up to 8, may be rounded to bf16 before the bias is added and again before dropout scales it.
TEST_F(LinearOps, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products())) {
      continue;
    }
    const Bound bound{.absolute = c.bias ? 1.6e-2 : 2e-3,
                      .relative = c.rate > 0 ? 1.0 / 64 : 1.0 / 128,
                      .exact_zeros = c.activation != Activation::relu};
    expect_formula(
        [&](Lab& lab) {
          const Room y = lab.c().poisoned(c.rows, c.out, c.margin), pre = lab.c().poisoned(c.rows, c.out, c.margin);
          lab.backend().run(op::Linear{.y = y,
                                       .pre = c.with_pre() ? pre.inner : View{},
                                       .gate = gate_of(lab, c),
                                       .x = lab.c().random(c.rows, c.in, 1, 1, c.margin),
                                       .w = lab.c().random(c.out, c.in, 2),
                                       .bias = c.bias ? lab.c().random(1, c.out, 3).inner : View{},
                                       .activation = c.activation,
                                       .dropout = {c.rate, 9, Side::target, lab.put_struct(kState)}});
          lab.give("y", y, bound);
          if (c.with_pre()) {
            lab.give("pre", pre, bound);
          }
        },
        describe(c));
  }
}

constexpr int64_t kOut = 64;  // of the product behind h

// h = dropout(activation(pre)) and the gradient of pre, given that of h w2'. What relu saves, and its gate, are those
// of the device's own forward pass.
void backward_input(Lab& lab, const Case& c, bool column_sums, bool accumulate_sums, const Bound& bound) {
  const Dropout dropout{c.rate, 9, Side::target, lab.put_struct(kState)};
  const Room saved =
      c.curved() ? lab.c().random(c.rows, c.out, 1, 2, c.margin) : lab.c().poisoned(c.rows, c.out, c.margin);
  const View gate = gate_of(lab, c);
  if (c.activation == Activation::relu) {
    lab.backend().run(op::Linear{.y = saved,
                                 .gate = gate,
                                 .x = lab.c().random(c.rows, c.in, 1),
                                 .w = lab.c().random(c.out, c.in, 2),
                                 .activation = c.activation,
                                 .dropout = dropout});
  }
  const Room sums = lab.g().random(1, c.out, 11);
  const Room dx =
      c.accumulate ? lab.c().random(c.rows, c.out, 6, 1, c.margin) : lab.c().poisoned(c.rows, c.out, c.margin);
  lab.backend().run(op::LinearBackwardInput{.dx = dx,
                                            .column_sums = column_sums ? sums.inner : View{},
                                            .dy = lab.c().random(c.rows, kOut, 5, 1, c.margin),
                                            .w = lab.c().random(kOut, c.out, 7),
                                            .saved = c.activation == Activation::none ? View{} : saved.inner,
                                            .gate = gate,
                                            .activation = c.activation,
                                            .dropout = dropout,
                                            .accumulate = c.accumulate,
                                            .accumulate_sums = accumulate_sums});
  if (column_sums) {
    lab.give("column sums", sums, bound);
  } else {
    lab.give("dx", dx, bound);
  }
}

// A GPU writes gradients behind an activation or dropout, it does not add to them.
bool can_run(const Case& c) { return !testing::devices()[0].gpu || !c.accumulate || !c.masked(); }

TEST_F(LinearOps, BackwardInput) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products()) || !can_run(c)) {
      continue;
    }
    const Bound bound{.absolute = 2e-2, .relative = 1.0 / 64, .exact_zeros = c.rate > 0 && !c.accumulate};
    expect_formula([&](Lab& lab) { backward_input(lab, c, false, true, bound); }, describe(c));
  }
}

// The elements are sums of kOut products of numbers uniform in [-1, 1]: of standard deviation sqrt(kOut) / 3, up to 12
// where dropout has scaled them. The GPU adds up what it has rounded to bf16 (half a step: at most 1/256 of an element,
// evenly spread), with dropout once before the scaling and once behind it; four standard deviations of that walk over
// the rows that are kept. A row that is missing changes columns by a whole element.
TEST_F(LinearOps, ColumnSums) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products()) || !can_run(c)) {
      continue;
    }
    const double kept = 1 - static_cast<double>(c.rate);
    const double element = std::sqrt(static_cast<double>(kOut)) / 3 / kept;
    const double roundings = kept < 1 ? 2 : 1;
    const double walk = 4 * element / 256 / std::sqrt(3.0) * std::sqrt(roundings * kept * static_cast<double>(c.rows));
    const Bound bound{.absolute = 1e-3 + walk, .relative = 1e-3, .zeros = c.rows == 0};
    for (const bool accumulate : {true, false}) {
      expect_formula([&](Lab& lab) { backward_input(lab, c, true, accumulate, bound); }, describe(c));
    }
  }
}

// The gradients of matrices on the same rows. Rows may be in parts, which change nothing but the order of additions.
void backward_weights(Lab& lab, const std::vector<Case>& matrices, bool accumulate, RowParts parts = {}) {
  std::vector<Room> rooms;
  std::vector<WeightGradient> gradients;
  for (const Case& c : matrices) {
    const auto seed = static_cast<uint32_t>(10 * gradients.size());
    rooms.push_back(lab.g().random(c.out, c.in, seed + 8, 1, c.margin));
    rooms.push_back(lab.g().random(1, c.out, seed + 9));
    gradients.push_back({rooms[rooms.size() - 2], c.bias ? rooms.back().inner : View{},
                         lab.c().random(matrices[0].rows, c.out, seed + 5, 1, c.margin),
                         lab.c().random(matrices[0].rows, c.in, seed + 1, 1, c.margin)});
  }
  lab.backend().run(op::LinearBackwardWeights{.gradients = gradients, .parts = parts, .accumulate = accumulate});
  for (size_t i = 0; i < rooms.size(); ++i) {
    lab.give(i % 2 == 0 ? "dw" : "dbias", rooms[i], {.zeros = matrices[0].rows == 0});
  }
}

TEST_F(LinearOps, BackwardWeight) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products())) {
      continue;
    }
    for (const bool accumulate : {true, false}) {
      expect_formula([&](Lab& lab) { backward_weights(lab, {c}, accumulate); }, describe(c));
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

TEST_F(LinearOps, BackwardWeights) {
  for (const auto& [first, second] : weight_pairs()) {
    if (leaves_out(first.products() + second.products())) {
      continue;
    }
    for (const bool accumulate : {true, false}) {
      expect_formula(
          [&](Lab& lab) {
            backward_weights(lab, {first, second}, accumulate);
          },
          describe(first) + " and " + describe(second));
    }
  }
}

TEST_F(LinearOps, BackwardWeightsInParts) {
  const std::vector<int32_t> parts{0, 1, 1, 64, 131, 200, 330, 512, 513, 700};
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{65, 33}, {40, 513}, {1030, 5}, {1, 1}}) {
    for (const bool accumulate : {true, false}) {
      const Case c{.rows = 700, .in = in, .out = out, .bias = true};
      expect_formula([&](Lab& lab) { backward_weights(lab, {c}, accumulate, parts); }, describe(c));
    }
  }
}

// More shapes than a cache of compiled products holds.
TEST_F(LinearOps, ManyShapes) {
  for (int64_t out = 1; out <= 300; ++out) {
    if (leaves_out()) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          const Room y = lab.c().poisoned(2, out);
          lab.backend().run(op::Linear{.y = y, .x = lab.c().random(2, 3, 1), .w = lab.c().random(out, 3, 2)});
          lab.give("y", y);
        },
        fmt::format("out {}", out));
  }
}

// A sum over the vocabulary, which a CPU makes in several rounds.
TEST_F(LinearOps, BackwardInputOfManyTerms) {
  for (const bool accumulate : {false, true}) {
    expect_formula(
        [&](Lab& lab) {
          const Room dx = lab.c().random(3, 8, 1);
          lab.backend().run(op::LinearBackwardInput{
              .dx = dx, .dy = lab.c().random(3, 8200, 2), .w = lab.c().random(8200, 8, 3), .accumulate = accumulate});
          lab.give("dx", dx, {.absolute = 2e-2, .relative = 1.0 / 64});
        },
        "8200 terms");
  }
}

}  // namespace
}  // namespace tandem::backend
