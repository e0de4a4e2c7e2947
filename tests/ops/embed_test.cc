#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Room;

class EmbedOps : public testing::OpTest {};

constexpr int64_t kVocabulary = 300;
constexpr int64_t kLongest = 40;
const StepState kState{.seed = 77, .step = 3, .first_source = 11};

// Runs of these lengths, ids rising from 1 in steps of 2, in a shuffled batch.
std::vector<int32_t> tokens_of(const std::vector<int>& lengths) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < lengths.size(); ++i) {
    tokens.insert(tokens.end(), static_cast<size_t>(lengths[i]), static_cast<int32_t>(1 + 2 * i));
  }
  PhiloxStream random(5, 1);
  for (size_t i = tokens.size(); i > 1; --i) {
    std::swap(tokens[i - 1], tokens[random.below(i)]);
  }
  return tokens;
}

// As a batch of fixed capacity has it: `spare` more rows, and empty runs at the end.
TokenOrder put_order(Lab& lab, const std::vector<int32_t>& tokens, size_t spare) {
  auto [rows, ids, starts] = testing::Order(tokens);
  rows.resize(rows.size() + spare);
  ids.resize(ids.size() + spare);
  starts.resize(starts.size() + spare, starts.back());
  return {lab.put(rows), lab.put(ids), lab.put(starts)};
}

struct Case {
  std::vector<int> lengths;
  int64_t cols;
  float rate = 0;
  size_t spare = 0;
  int64_t margin = 0;

  double products() const {
    double rows = static_cast<double>(spare);
    for (const int length : lengths) {
      rows += length;
    }
    return 16 * rows * static_cast<double>(cols);
  }
};

std::string describe(const Case& c) {
  return fmt::format("{} runs, the first of {}, cols {} rate {} spare {} margin {}", c.lengths.size(),
                     c.lengths.empty() ? 0 : c.lengths[0], c.cols, c.rate, c.spare, c.margin);
}

std::vector<Case> cases() {
  // Around the length from which a run is cut into pieces, at all kinds of places.
  const std::vector<int> lengths = {64, 65, 1, 63, 128, 129, 2, 200, 64, 64, 127, 1, 1, 66, 3, 1000, 70, 5};
  std::vector<Case> all;
  for (const int64_t cols : {1, 32, 33, 96, 512, 1000, 1024}) {
    all.push_back({lengths, cols, 0.3F});
    all.push_back({lengths, cols, 0, 100});
  }
  all.push_back({lengths, 96, 0.3F, 70, 8});
  all.push_back({lengths, 96, 0.3F, 70, 3});
  all.push_back({{1}, 512, 0.1F});
  all.push_back({{1, 1, 1, 28}, 512, 0.1F, 31});
  all.push_back({{33}, 512, 0});
  all.push_back({{3000, 5, 2000, 1}, 512, 0.1F, 500});
  all.push_back({{}, 64, 0.1F, 8});
  all.push_back({{}, 64, 0.1F});
  return all;
}

TEST_F(EmbedOps, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out_on_a_cpu(c.products())) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          std::vector<int32_t> tokens = tokens_of(c.lengths), positions;
          tokens.resize(tokens.size() + c.spare);
          for (size_t i = 0; i < tokens.size(); ++i) {
            positions.push_back(static_cast<int32_t>(i * 7 % kLongest));
          }
          const Room x = lab.c().poisoned(static_cast<int64_t>(tokens.size()), c.cols, c.margin);
          lab.backend().run(op::Embed{.x = x,
                                      .tokens = lab.put(tokens),
                                      .position = lab.put(positions),
                                      .table = lab.c().random(kVocabulary, c.cols, 1, 1, c.margin),
                                      .positions = lab.m().random(kLongest, c.cols, 2),
                                      .scale = 3,
                                      .dropout = {c.rate, 8, Side::source, lab.put_struct(kState)}});
          lab.give("x", x, {.absolute = 1e-4, .exact_zeros = true});
        },
        describe(c));
  }
}

TEST_F(EmbedOps, Backward) {
  for (const Case& c : cases()) {
    if (leaves_out_on_a_cpu(c.products())) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          const std::vector<int32_t> tokens = tokens_of(c.lengths);
          const auto rows = static_cast<int64_t>(tokens.size() + c.spare);
          const Room dtable = lab.g().random(kVocabulary, c.cols, 3);
          lab.backend().run(op::EmbedBackward{.dtable = dtable,
                                              .dx = lab.c().random(rows, c.cols, 4, 1, c.margin),
                                              .order = put_order(lab, tokens, c.spare),
                                              .scale = 3,
                                              .dropout = {c.rate, 8, Side::source, lab.put_struct(kState)}});
          lab.give("dtable", dtable, {.absolute = 2e-3});
        },
        describe(c));
  }
}

TEST_F(EmbedOps, AddRows) {
  for (const int64_t cols : {1, 7, 64, 512}) {
    expect_formula(
        [&](Lab& lab) {
          const Room table = lab.m().random(9, cols, 1);
          lab.backend().run(op::AddRows{.table = table,
                                        .ids = lab.put(std::vector<int32_t>{8, -1, 0, 3, -1}),
                                        .rows = lab.m().random(5, cols, 2)});
          lab.give("table", table, testing::kExact);  // sums of two bf16 values are exact
        },
        fmt::format("{} columns", cols));
  }
}

}  // namespace
}  // namespace tandem::backend
