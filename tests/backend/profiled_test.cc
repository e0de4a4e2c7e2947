#include "backend/profiled.h"

#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

// An output cannot be what is only read, nor can what an op reads be written through it.
static_assert(std::is_convertible_v<View, ConstView> && !std::is_convertible_v<ConstView, View>);
static_assert(std::is_same_v<decltype(op::AddRows::table), View> &&
              std::is_same_v<decltype(op::AddRows::rows), ConstView>);
static_assert(std::is_same_v<decltype(ConstView{}.host<float>()), const float*>);

TEST(ProfiledBackend, EveryOpHasItsLine) {
  const auto cpu = make_cpu_backend(1);
  ProfiledBackend backend(*cpu);
  auto table = Matrix<float>::random(6, 4, 1), rows = Matrix<float>::random(2, 4, 2),
       x = Matrix<float>::random(8, 4, 3), y = Matrix<float>(8, 6);
  std::vector<int32_t> ids = {3, -1}, starts = {0, 3, 8};
  Matrix<double> sum(1, 1);
  UpdateState update;
  backend.run(op::AddRows{.table = table.view(), .ids = testing::ints(ids), .rows = rows.view()});
  backend.run(op::SumOfSquares{.sum = sum.view(), .x = table.view()});
  backend.run(op::PrepareUpdate{.update = &update, .sums = sum.view(), .settings = {}});
  for (int i = 0; i < 2; ++i) {
    backend.run(op::Linear{.y = y.view(), .x = x.view(), .w = table.view()});
  }
  const AttentionShape shape{.query_starts = testing::ints(starts), .key_starts = testing::ints(starts)};
  Matrix<float> out(8, 4);
  backend.run(op::Attention{.out = out.view(), .q = x.view(), .k = x.view(), .v = x.view(), .shape = shape});
  backend.fill_zero(out.view());

  std::map<std::string, OpProfile> lines;
  for (const OpProfile& line : backend.profile()) {
    lines[line.name] = line;
  }
  EXPECT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines["add_rows 2x4"].bytes, 3 * 2 * 4 * 4);  // of table and rows read, of table written
  EXPECT_EQ(lines["sum_of_squares"].bytes, 6 * 4 * 4);
  EXPECT_EQ(lines["prepare_update"].bytes, 8);
  EXPECT_EQ(lines["fill_zero 8x4"].bytes, 8 * 4 * 4);
  const OpProfile& product = lines["linear 8x6x4"];
  EXPECT_EQ(product.calls, 2);
  EXPECT_EQ(product.bytes, 2 * 4 * (8 * 6 + 8 * 4 + 6 * 4));
  EXPECT_EQ(product.flops, 2 * 2 * 8 * 6 * 4);
  EXPECT_EQ(lines["attention 8x4"].flops, 4 * (3 * 3 + 5 * 5) * 4);
  EXPECT_GT(lines["attention 8x4"].seconds, 0);
}

}  // namespace
}  // namespace tandem::backend
