#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::ints;
using testing::MasterOf;
using testing::Matrix;
using testing::Results;

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

struct Order {
  std::vector<int32_t> rows, ids, starts;

  explicit Order(const std::vector<int32_t>& tokens) : rows(tokens.size()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<int32_t>(i);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
      return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t id = tokens[static_cast<size_t>(rows[i])];
      if (ids.empty() || ids.back() != id) {
        ids.push_back(id);
        starts.push_back(static_cast<int32_t>(i));
      }
    }
    starts.push_back(static_cast<int32_t>(rows.size()));
  }

  TokenOrder view() { return {ints(rows), ints(ids), ints(starts)}; }
};

template <class T>
Results run(Backend& backend, int64_t rows, int64_t cols, float rate) {
  using M = MasterOf<T>;
  std::vector<int32_t> tokens = tokens_of(rows), positions = positions_of(rows);
  auto table = Matrix<T>::random(kVocabulary, cols, 1);
  auto places = Matrix<M>::random(kLongest, cols, 2);
  auto dx = Matrix<T>::random(rows, cols, 3);
  auto dtable = Matrix<M>::random(kVocabulary, cols, 4);
  Matrix<T> x(rows, cols);
  Order order(tokens);
  const Dropout dropout{rate, 8, Side::source, &kState};
  backend.run(op::Embed{.x = x.view(),
                        .tokens = ints(tokens),
                        .position = ints(positions),
                        .table = table.view(),
                        .positions = places.view(),
                        .scale = 8.0F,
                        .dropout = dropout});
  backend.run(op::EmbedBackward{
      .dtable = dtable.view(), .dx = dx.view(), .order = order.view(), .scale = 8.0F, .dropout = dropout});
  Results results;
  append(results, x.data);
  append(results, dtable.data);
  return results;
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

TEST(Embed, EveryTypeAgreesWithF64) {
  const auto backend = make_cpu_backend(2);
  for (const auto& [rows, cols] : testing::kOddSizes) {
    const Results expected = run<double>(*backend, rows, cols, 0.3F);
    EXPECT_TRUE(testing::all_close(run<float>(*backend, rows, cols, 0.3F), expected, 1e-4, 1e-5));
    EXPECT_TRUE(testing::all_close(run<bf16>(*backend, rows, cols, 0.3F), expected, 1e-2, 1e-2));
  }
}

TEST(Embed, SameBitsAtAnyThreadCount) {
  testing::expect_same_bits_at_any_thread_count([](Backend& backend) { return run<float>(backend, 1000, 64, 0.3F); });
}

TEST(AddRows, AddsEachRowToItsPlaceAndLeavesTheOthers) {
  const auto backend = make_cpu_backend(2);
  for (const int64_t cols : {1, 7, 64}) {
    auto table = Matrix<float>::random(5, cols, 1), rows = Matrix<float>::random(4, cols, 2);
    auto before = table;
    std::vector<int32_t> ids{3, -1, 0, 4};
    backend->run(op::AddRows{.table = table.view(), .ids = host_view(ids.data(), 1, 4), .rows = rows.view()});
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_EQ(table.row(0)[c], before.row(0)[c] + rows.row(2)[c]);
      EXPECT_EQ(table.row(1)[c], before.row(1)[c]);
      EXPECT_EQ(table.row(2)[c], before.row(2)[c]);
      EXPECT_EQ(table.row(3)[c], before.row(3)[c] + rows.row(0)[c]);
      EXPECT_EQ(table.row(4)[c], before.row(4)[c] + rows.row(3)[c]);
    }
  }
}

}  // namespace
}  // namespace tandem::backend
