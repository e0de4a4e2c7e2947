#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Room;

class AttentionCachedOp : public testing::OpTest {};

struct Case {
  int64_t rows, width;
  bool indexed;
  int32_t longest;
  int64_t margin;
};

constexpr int64_t kCached = 400;
constexpr int kHeads = 4;

// Row r sees up to `longest` cached rows, some rows none, scattered (index) or one after the other (first).
void run(Lab& lab, const Case& c) {
  std::vector<int32_t> length, first, index;
  PhiloxStream random(8, 8);
  for (int64_t r = 0; r < c.rows; ++r) {
    length.push_back(static_cast<int32_t>(r == 3 ? 0 : r == 4 ? c.longest : 1 + r * 13 % c.longest));
    first.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(kCached - c.longest))));
    for (int32_t i = 0; i < c.longest; ++i) {
      index.push_back(static_cast<int32_t>(random.below(kCached)));
    }
  }
  const int64_t cols = kHeads * c.width;
  const Room out = lab.c().poisoned(c.rows, cols, c.margin);
  const CachedKeys cache{lab.c().random(kCached, cols, 2, 1, c.margin), lab.c().random(kCached, cols, 3, 1, c.margin),
                         lab.put(length), c.indexed ? View{} : lab.put(first),
                         c.indexed ? lab.put(index, c.rows, c.longest) : View{}};
  lab.backend().run(op::AttentionCached{
      .out = out, .q = lab.c().random(c.rows, cols, 1, 2, c.margin), .cache = cache, .heads = kHeads});
  lab.give("out", out, {.absolute = 4e-3, .exact_zeros = true});
}

TEST_F(AttentionCachedOp, EqualsTheFormula) {
  for (const int64_t width : {1, 5, 8, 12, 20, 24, 32, 50, 64, 100, 128}) {
    for (const int64_t rows : {0, 1, 33, 300}) {
      for (const bool indexed : {false, true}) {
        for (const int32_t longest : {1, 31, 70, 300}) {
          for (const int64_t margin : {0, 3, 64}) {
            if (leaves_out(8 * static_cast<double>((rows * longest + kCached) * width * kHeads))) {
              continue;
            }
            expect_formula(
                [&](Lab& lab) {
                  run(lab, {rows, width, indexed, longest, margin});
                },
                fmt::format("rows {} width {} index {} longest {} margin {}", rows, width, indexed, longest, margin));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::backend
