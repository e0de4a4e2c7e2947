#include <cmath>

#include "cuda/device.h"

namespace tandem::backend {
namespace {

using testing::Lab;
using testing::Matrix;
using testing::Results;
using testing::Room;

class CudaTopLogProbabilities : public testing::CudaTest {};

Results best(Lab& lab, const View& logits, int64_t k) {
  const Room values = lab.poisoned<float>(logits.rows, k);
  const View ids = lab.poisoned_ints(logits.rows, k);
  lab.backend().run(op::TopLogProbabilities{.values = values, .ids = ids, .logits = logits});
  Results results;
  lab.append(results, ids);  // compared exactly: the tolerance is below 1
  lab.append(results, values);
  return results;
}

TEST_F(CudaTopLogProbabilities, EqualsTheCpu) {
  for (const int64_t cols : {2, 31, 64, 1000, 4096, 8192, 10000, 32768, 50000, 65544}) {
    for (const int64_t k : {1, 4, 8, 13, 64}) {
      if (k <= cols) {
        const auto logits = [&](Lab& lab) { return lab.random(33, cols, static_cast<uint32_t>(cols), 5); };
        expect_twins([&](Lab& lab) { return best(lab, logits(lab), k); }, {.absolute = 1e-4, .relative = 1e-6},
                     fmt::format("the best {} of {}", k, cols));
        Lab device(*gpu()), host(cpu());
        const Results actual = best(device, logits(device), k), expected = best(host, logits(host), k);
        const auto ids = static_cast<ptrdiff_t>(33 * k);  // many logits are equal in bf16: ties to the lower id
        EXPECT_TRUE(std::equal(actual.begin(), actual.begin() + ids, expected.begin())) << k << " of " << cols;
      }
    }
  }
}

TEST_F(CudaTopLogProbabilities, AllOfThemAndWiderRows) {
  expect_twins([](Lab& lab) { return best(lab, lab.random(5, 300, 1, 5), 300); }, {.absolute = 1e-4, .relative = 0},
               "all of 300");
  for (const int64_t margin : {3, 8}) {
    expect_twins([&](Lab& lab) { return best(lab, lab.random(7, 1000, 1, 5, margin), 8); },
                 {.absolute = 1e-4, .relative = 0}, fmt::format("margin {}", margin));
  }
  expect_twins([](Lab& lab) { return best(lab, lab.random(2000, 96, 1, 5), 5); }, {.absolute = 1e-4, .relative = 0},
               "2000 rows");
}

TEST_F(CudaTopLogProbabilities, OfOnePiece) {
  Lab lab(*gpu());
  EXPECT_EQ(best(lab, lab.random(1, 1, 1), 1), (Results{0, 0}));
}

TEST_F(CudaTopLogProbabilities, ForbiddenPiecesComeLast) {
  for (const int64_t cols : {10, 64, 32768}) {
    Lab lab(*gpu());
    auto logits = Matrix<bf16>::filled(1, cols, -std::numeric_limits<double>::infinity());
    logits.data[4] = bf16(1);
    logits.data[8] = bf16(1);
    const Results found = best(lab, lab.put(logits.data, 1, cols), 3);
    EXPECT_EQ((Results{found[0], found[1], found[2]}), (Results{4, 8, 0}));
    EXPECT_NEAR(found[3], -std::log(2.0), 1e-5);
    EXPECT_EQ(found[5], -std::numeric_limits<double>::infinity());
  }
}

// Whatever a broken model gives, ids are ids.
TEST_F(CudaTopLogProbabilities, NanLeavesTheIdsInRange) {
  Lab lab(*gpu());
  auto logits = Matrix<bf16>::filled(1, 64, std::nan(""));
  const Results found = best(lab, lab.put(logits.data, 1, 64), 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(found[i] >= 0 && found[i] < 64) << found[i];
  }
}

TEST_F(CudaTopLogProbabilities, RefusesMoreThanThereAre) {
  Lab lab(*gpu());
  EXPECT_THROW(best(lab, lab.random(2, 3, 1), 4), Error);
}

}  // namespace
}  // namespace tandem::backend
