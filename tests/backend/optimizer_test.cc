#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

UpdateSettings clipping(float max_norm) { return {.adam = {}, .max_norm = max_norm}; }

TEST(PrepareUpdate, HandMadeValuesAndClipping) {
  const auto backend = make_cpu_backend(2);
  Matrix<float> gradients(1, 3);
  gradients.data = {3, 0, -4};
  UpdateState norm;
  Matrix<double> sum(1, 1);
  const auto prepare = [&](float most) {
    testing::prepare_update(*backend, &norm, sum.view(), gradients.view(), clipping(most));
  };
  prepare(0);
  EXPECT_EQ(norm.norm, 5);
  EXPECT_EQ(norm.clip_factor, 1);
  EXPECT_EQ(norm.finite, 1U);
  prepare(2);
  EXPECT_FLOAT_EQ(norm.clip_factor, 0.4F);
  prepare(6);
  EXPECT_EQ(norm.clip_factor, 1);
}

TEST(MovingAverage, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  std::vector<double> average = {1, 2, 3}, masters = {3, 2, -1};
  const UpdateState norm{.average_decay = 0.75F};
  backend->run(op::MovingAverage{
      .average = host_view(average.data(), 1, 3), .masters = host_view(masters.data(), 1, 3), .update = &norm});
  EXPECT_EQ(average, (std::vector<double>{1.5, 2, 2}));
}

}  // namespace
}  // namespace tandem::backend
