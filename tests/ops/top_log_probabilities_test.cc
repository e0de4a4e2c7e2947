#include "ops/op_test.h"

namespace tandem::backend {
namespace {

using testing::Device;
using testing::Lab;
using testing::Matrix;
using testing::Results;
using testing::Room;

class TopLogProbabilitiesOp : public testing::OpTest {};

struct Best {
  Room values;
  View ids;
};

Best best(Lab& lab, const View& logits, int64_t k) {
  const Best found{lab.of(DType::f32).poisoned(logits.rows, k), lab.poisoned_ints(logits.rows, k)};
  lab.backend().run(op::TopLogProbabilities{.values = found.values, .ids = found.ids, .logits = logits});
  return found;
}

struct Case {
  int64_t rows, cols, k, margin = 0;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t cols : {2, 31, 64, 1000, 4096, 8192, 10000, 32768, 50000, 65544}) {
    for (const int64_t k : {1, 4, 8, 13, 64}) {
      if (k <= cols) {
        all.push_back({33, cols, k});
      }
    }
  }
  all.push_back({5, 300, 300});
  all.push_back({7, 1000, 8, 3});
  all.push_back({7, 1000, 8, 8});
  all.push_back({2000, 96, 5});
  return all;
}

// Many logits are equal in bf16: ties go to the lower id.
TEST_F(TopLogProbabilitiesOp, EqualsASort) {
  for (const Case& c : cases()) {
    if (leaves_out_on_a_cpu(16 * static_cast<double>(c.rows * c.cols))) {
      continue;
    }
    expect_formula(
        [&](Lab& lab) {
          const auto seed = static_cast<uint32_t>(c.cols);
          const Best found = best(lab, lab.c().random(c.rows, c.cols, seed, 5, c.margin), c.k);
          lab.give_ints("ids", found.ids);
          lab.give("values", found.values, {.absolute = 1e-4, .relative = 1e-6});
        },
        fmt::format("the best {} of {} in {} rows, margin {}", c.k, c.cols, c.rows, c.margin));
  }
}

TEST_F(TopLogProbabilitiesOp, OfOnePiece) {
  for (const Device& device : testing::devices()) {
    Lab lab(*device.backend, device.types);
    const Best found = best(lab, lab.c().random(1, 1, 1), 1);
    EXPECT_EQ(lab.values(found.values.whole), Results{0});
    EXPECT_EQ(lab.values(found.ids), Results{0});
  }
}

TEST_F(TopLogProbabilitiesOp, ForbiddenPiecesComeLast) {
  for (const Device& device : testing::devices()) {
    for (const int64_t cols : {10, 64, 32768}) {
      Lab lab(*device.backend, device.types);
      auto logits = Matrix<float>::filled(1, cols, -std::numeric_limits<double>::infinity());
      logits.data[4] = 1;
      logits.data[8] = 1;
      const Best found = best(lab, lab.c().put(logits), 3);
      EXPECT_EQ(lab.values(found.ids), (Results{4, 8, 0}));
      const Results values = lab.values(found.values.whole);
      EXPECT_NEAR(values[0], -std::log(2.0), 1e-5);
      EXPECT_EQ(values[2], -std::numeric_limits<double>::infinity());
    }
  }
}

// Whatever a broken model gives, ids are ids.
TEST_F(TopLogProbabilitiesOp, NanLeavesTheIdsInRange) {
  for (const Device& device : testing::devices()) {
    Lab lab(*device.backend, device.types);
    for (const double id : lab.values(best(lab, lab.c().put(Matrix<float>::filled(1, 64, std::nan(""))), 8).ids)) {
      EXPECT_TRUE(id >= 0 && id < 64) << id << " on " << device.name;
    }
  }
}

TEST_F(TopLogProbabilitiesOp, RefusesMoreThanThereAre) {
  for (const Device& device : testing::devices()) {
    Lab lab(*device.backend, device.types);
    EXPECT_THROW(best(lab, lab.c().random(2, 3, 1), 4), Error);
  }
}

}  // namespace
}  // namespace tandem::backend
