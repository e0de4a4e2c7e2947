#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::ints;
using testing::Matrix;
using testing::Order;

constexpr int64_t kVocabulary = 19;
constexpr int64_t kLongest = 40;

const StepState kState{.seed = 77, .step = 3, .first_source = 11};

std::vector<int32_t> tokens_of(int64_t rows) {
  PhiloxStream random(5, 1);
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.below(kVocabulary - 2));
  }
  return tokens;
}

std::vector<int32_t> positions_of(int64_t rows) {
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<int32_t>(i * 7 % kLongest);
  }
  return positions;
}

TEST(Embed, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  std::vector<int32_t> tokens = {2, 0, 2}, positions = {0, 1, 1};
  Matrix<float> table(3, 2), places(2, 2), x(3, 2), dtable(3, 2), dx(3, 2);
  table.data = {1, 2, 3, 4, 5, 6};
  places.data = {0.5, 0.25, -1, -2};
  backend->run(op::Embed{.x = x.view(),
                         .tokens = ints(tokens),
                         .position = ints(positions),
                         .table = table.view(),
                         .positions = places.view(),
                         .scale = 10});
  EXPECT_EQ(x.data, (std::vector<float>{50.5F, 60.25F, 9, 18, 49, 58}));
  dx.data = {1, 2, 3, 4, 5, 6};
  dtable.data = {1, 1, 1, 1, 1, 1};
  Order order(tokens);
  backend->run(op::EmbedBackward{.dtable = dtable.view(), .dx = dx.view(), .order = order.view(), .scale = 10});
  EXPECT_EQ(dtable.data, (std::vector<float>{31, 41, 1, 1, 61, 81}));
}

TEST(Embed, BackwardMatchesCentralDifferences) {
  const auto backend = make_cpu_backend(1);
  for (const float rate : {0.0F, 0.3F}) {
    const int64_t rows = 23, cols = 10;
    std::vector<int32_t> tokens = tokens_of(rows), positions = positions_of(rows);
    auto table = Matrix<double>::random(kVocabulary, cols, 1);
    auto places = Matrix<double>::random(kLongest, cols, 2);
    auto dx = Matrix<double>::random(rows, cols, 3);
    Matrix<double> x(rows, cols), dtable(kVocabulary, cols), numeric(kVocabulary, cols);
    const Dropout dropout{rate, 8, Side::source, &kState};
    testing::numeric_gradient(numeric.span(), table.span(), [&] {
      backend->run(op::Embed{.x = x.view(),
                             .tokens = ints(tokens),
                             .position = ints(positions),
                             .table = table.view(),
                             .positions = places.view(),
                             .scale = 3,
                             .dropout = dropout});
      return testing::dot(x.data, dx.data);
    });
    Order order(tokens);
    backend->run(op::EmbedBackward{
        .dtable = dtable.view(), .dx = dx.view(), .order = order.view(), .scale = 3, .dropout = dropout});
    EXPECT_TRUE(testing::close(dtable.span(), numeric.span(), 1e-7, 1e-7)) << rate;
  }
}

}  // namespace
}  // namespace tandem::backend
