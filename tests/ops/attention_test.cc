#include <algorithm>

#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Bound;
using testing::Device;
using testing::Lab;
using testing::Results;
using testing::Room;

class AttentionOps : public testing::OpTest {};

const StepState kState{.seed = 31, .step = 8, .first_source = 3, .first_target = 40};

using Lengths = std::vector<int32_t>;

struct Case {
  Lengths queries, keys;
  int heads = 2;
  int64_t width = 64;  // of a head
  bool causal = false;
  float rate = 0;
  int64_t spare = 0;    // rows past the last sentence
  int64_t longest = 0;  // the limit that the backend is told, where it is more than the longest sentence
  int64_t margin = 0;   // columns on both sides of every matrix, if not those of the model

  int32_t longest_query() const { return *std::max_element(queries.begin(), queries.end()); }
  int32_t longest_key() const { return *std::max_element(keys.begin(), keys.end()); }
  double products() const {
    double pairs = 0;
    for (size_t i = 0; i < queries.size(); ++i) {
      pairs += static_cast<double>(queries[i] * keys[i]);
    }
    return 2 * pairs * static_cast<double>(heads * width);
  }
};

const Lengths kAll = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256, 300};
const Lengths kReversed(kAll.rbegin(), kAll.rend());
const Lengths kSome = {1, 2, 31, 0, 33, 16, 5}, kOthers = {33, 1, 2, 5, 17, 0, 0};

std::string describe(const Case& c) {
  return fmt::format("{} sentences, heads {} width {} causal {} rate {} spare {} longest {} margin {}",
                     c.queries.size(), c.heads, c.width, c.causal, c.rate, c.spare, c.longest, c.margin);
}

Lengths starts_of(const Lengths& lengths) {
  Lengths starts = {0};
  for (const int32_t length : lengths) {
    starts.push_back(starts.back() + length);
  }
  return starts;
}

// Forward and backward over matrices whose q, k and v are columns of wider ones, as the model has them.
struct Attention {
  Lab& lab;
  const Case& c;
  Lengths query_starts = starts_of(c.queries), key_starts = starts_of(c.keys);
  int64_t query_rows = query_starts.back() + c.spare, key_rows = key_starts.back() + c.spare, cols = c.heads * c.width;
  int64_t beside = c.margin > 0 ? c.margin : cols;
  Room q = lab.c().random(query_rows, cols, 1, 2, beside), k = lab.c().random(key_rows, cols, 2, 1, beside),
       v = lab.c().random(key_rows, cols, 4, 1, beside), dout = lab.c().random(query_rows, cols, 3, 1, c.margin);
  Room out = lab.c().poisoned(query_rows, cols, c.margin), log_sums = lab.m().poisoned(c.heads, query_rows);
  Room dq = lab.c().poisoned(query_rows, cols, beside), dk = lab.c().poisoned(key_rows, cols, beside),
       dv = lab.c().poisoned(key_rows, cols, beside);
  AttentionShape shape{c.heads,
                       c.causal,
                       lab.put(query_starts),
                       lab.put(key_starts),
                       std::max<int64_t>(c.longest, c.longest_query()),
                       std::max<int64_t>(c.longest, c.longest_key()),
                       {c.rate, 20, Side::target, lab.put_struct(kState)}};

  void forward() {
    lab.backend().run(op::Attention{.out = out, .log_sums = log_sums, .q = q, .k = k, .v = v, .shape = shape});
  }
  void backward() {
    lab.backend().run(op::AttentionBackward{.dq = dq,
                                            .dk = dk,
                                            .dv = dv,
                                            .dout = dout,
                                            .out = out,
                                            .log_sums = log_sums,
                                            .q = q,
                                            .k = k,
                                            .v = v,
                                            .shape = shape});
  }
  // An output's rows of sentences, and those past the last one, which are zeros.
  void give(const std::string& name, const Room& room, int64_t end, const Bound& bound) {
    lab.give(name, room.rows(0, end), bound);
    lab.give(name + " past the last sentence", room.rows(end, room.inner.rows - end), testing::kExact);
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t width : {8, 24, 32, 64, 128}) {
    for (const float rate : {0.0F, 0.1F}) {
      all.push_back({kAll, kAll, 2, width, true, rate});
      all.push_back({kAll, kAll, 2, width, false, rate, 5});
      all.push_back({kAll, kReversed, 2, width, false, rate});
    }
  }
  for (const float rate : {0.0F, 0.1F}) {  // heads and matrices whose rows are not whole vectors of 16 bytes
    for (const int64_t width : {1, 5, 12, 20, 50, 100}) {
      all.push_back({kAll, kAll, 3, width, true, rate});
      all.push_back({kAll, kReversed, 2, width, false, rate, 5});
    }
    for (const int64_t width : {8, 32, 64, 128}) {
      all.push_back({kAll, kReversed, 2, width, false, rate, 0, 0, 3});
      all.push_back({kAll, kAll, 2, width, true, rate, 5, 0, 4});
    }
  }
  for (const int32_t length : kAll) {  // one sentence
    all.push_back({{length}, {length}, 1, 64, true, 0.1F});
    all.push_back({{length}, {33}, 2, 32, false, 0.1F, 3});
    all.push_back({{17}, {length}, 2, 64, false, 0.1F});
  }
  for (const int64_t width : {20, 32, 64}) {  // few tokens, and sentences without any
    for (const float rate : {0.0F, 0.3F}) {
      all.push_back({kSome, kSome, 2, width, true, rate});
      all.push_back({kSome, kSome, 2, width, false, rate, 3});
      all.push_back({kSome, kOthers, 3, width, false, rate, 1});
    }
  }
  // Many short sentences; capacity for more sentences, rows and length than there are.
  all.push_back({Lengths(700, 1), Lengths(700, 2), 2, 32, false, 0.1F});
  all.push_back({Lengths(700, 3), Lengths(700, 3), 2, 64, true, 0.1F});
  all.push_back({Lengths(2500, 2), Lengths(2500, 1), 2, 16, false, 0.1F});
  all.push_back({{20, 64, 3, 0, 0, 0}, {20, 64, 3, 0, 0, 0}, 8, 64, true, 0.1F, 70, 256});
  all.push_back({{20, 64, 3, 0, 0, 0}, {7, 100, 65, 0, 0, 0}, 8, 64, false, 0.1F, 200, 256});
  for (const int heads : {1, 3, 5}) {  // heads that do not go in pairs
    all.push_back({{20, 64, 3, 33, 0}, {7, 100, 65, 32, 0}, heads, 64, false, 0.1F, 40});
    all.push_back({{20, 64, 3, 33, 130}, {20, 64, 3, 33, 130}, heads, 32, true, 0.1F});
  }
  return all;
}

constexpr Bound kOut{.absolute = 8e-3, .exact_zeros = true};

TEST_F(AttentionOps, Forward) {
  for (const Case& c : cases()) {
    if (leaves_out(c.products())) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          Attention attention{lab, c};
          attention.forward();
          attention.give("out", attention.out, attention.query_starts.back(), kOut);
          lab.give("log sums", attention.log_sums, kOut);
        },
        describe(c));
  }
}

// In sentences of more than 64 tokens sum(p dp) is taken from dout and out, which is rounded to bf16; a key's gradient
// adds that error up over all its queries, here up to 300.
TEST_F(AttentionOps, Backward) {
  for (const Case& c : cases()) {
    if (leaves_out(3 * c.products())) {
      continue;
    }
    const auto longest = std::max(c.longest_query(), c.longest_key());
    const Bound bound{.absolute = longest > 64 ? 6e-2 : 2.5e-2,
                      .relative = 1.0 / 64,
                      .zeros = c.longest_query() == 1 || c.longest_key() == 1};
    expect_formula(
        [&](Lab& lab) {
          Attention attention{lab, c};
          attention.forward();
          attention.backward();
          attention.give("dq", attention.dq, attention.query_starts.back(), bound);
          attention.give("dk", attention.dk, attention.key_starts.back(), bound);
          attention.give("dv", attention.dv, attention.key_starts.back(), bound);
        },
        describe(c));
  }
}

// As the model has it: one plan for all calls. It changes no bit.
TEST_F(AttentionOps, OnePlanForForwardAndBackward) {
  const auto run = [](const Device& device, const Case& c, bool plan) {
    Lab lab(*device.backend, device.types);
    Attention attention{lab, c};
    if (plan) {
      const int64_t size = lab.backend().attention_plan_size(attention.shape, attention.query_rows);
      const View made = lab.put(Lengths(static_cast<size_t>(size), -1));
      lab.backend().run(op::PlanAttention{.plan = made,
                                          .query_starts = attention.shape.query_starts,
                                          .key_starts = attention.shape.key_starts,
                                          .query_rows = attention.query_rows,
                                          .key_rows = attention.key_rows});
      attention.shape.plan = made;
    }
    for (int i = 0; i < 2; ++i) {
      attention.forward();
      attention.backward();
    }
    Results results;
    for (const Room& room : {attention.out, attention.dq, attention.dk, attention.dv}) {
      const Results values = lab.values(room.whole);
      results.insert(results.end(), values.begin(), values.end());
    }
    return results;
  };
  for (const Case& c : cases()) {
    if (leaves_out(16 * c.products())) {
      continue;
    }
    for (const Device& device : testing::devices()) {
      const Results with = run(device, c, true), without = run(device, c, false);
      ASSERT_FALSE(with.empty());
      EXPECT_TRUE(with == without) << describe(c) << " on " << device.name;
    }
  }
}

// What an op may leave to the backend: no log_sums in decoding and validation.
TEST_F(AttentionOps, WithoutLogSums) {
  const Case c{{20, 64, 3}, {20, 64, 3}, 2, 64, true};
  expect_formula(
      [&](Lab& lab) {
        Attention attention{lab, c};
        attention.log_sums = {};
        attention.forward();
        lab.give("out", attention.out, kOut);
      },
      describe(c));
}

// Values that pick out one key each, so that an output is one weight: 0 exactly where it was dropped.
TEST_F(AttentionOps, Masks) {
  for (const int64_t width : {32, 64, 128}) {
    const auto length = static_cast<int32_t>(width);
    const Case c{{length, 9, length}, {length, 9, length}, 2, width, false, 0.3F};
    expect_formula(
        [&](Lab& lab) {
          Attention attention{lab, c};
          testing::Matrix<float> unit(attention.key_rows, attention.cols);
          for (size_t s = 0; s < c.keys.size(); ++s) {
            for (int32_t i = 0; i < c.keys[s]; ++i) {
              for (int head = 0; head < c.heads; ++head) {
                unit.row(attention.key_starts[s] + i)[head * width + i] = 1;
              }
            }
          }
          attention.v = lab.c().put(unit);
          attention.forward();
          lab.give("out", attention.out, {.absolute = 1e-4, .relative = 1.0 / 64, .exact_zeros = true});
        },
        describe(c));
  }
}

}  // namespace
}  // namespace tandem::backend
