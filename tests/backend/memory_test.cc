#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

TEST(Memory, AllocationsAreAligned) {
  const auto backend = make_cpu_backend(2);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{65}, size_t{1} << 20}) {
    const Buffer buffer = backend->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
  }
}

TEST(Memory, UploadAndDownloadKeepTheBytes) {
  const auto backend = make_cpu_backend(2);
  auto values = Matrix<float>::random(7, 33, 1);
  const Buffer buffer = backend->allocate(values.data.size() * sizeof(float));
  const View view = buffer.view(DType::f32, 7, 33);
  backend->upload(view, values.data.data());
  std::vector<float> back(values.data.size());
  backend->download(back.data(), view);
  EXPECT_EQ(back, values.data);
}

template <class To, class From>
void expect_conversion(int64_t rows, int64_t cols) {
  const auto backend = make_cpu_backend(2);
  auto from = Matrix<From>::random(rows, cols, 3);
  auto to = Matrix<To>::filled(rows, cols, 9);
  backend->copy(to.view(), from.view());
  for (size_t i = 0; i < from.data.size(); ++i) {
    ASSERT_EQ(static_cast<double>(to.data[i]), static_cast<double>(from.data[i])) << i;
  }
}

TEST(Memory, CopyConvertsBetweenTypes) {
  for (const int64_t cols : {1, 31, 1000}) {
    expect_conversion<float, float>(3, cols);
    expect_conversion<bf16, float>(3, cols);
    expect_conversion<float, bf16>(3, cols);
    expect_conversion<double, bf16>(3, cols);
    expect_conversion<bf16, double>(3, cols);
    expect_conversion<double, float>(70, cols);
    expect_conversion<float, double>(0, cols);
  }
  expect_conversion<bf16, float>(1, 200000);
}

TEST(Memory, CopyToBf16RoundsToNearestEven) {
  const auto backend = make_cpu_backend(1);
  std::vector<float> from = {1.0F,
                             1.00390625F,
                             1.01171875F,
                             -1.0039064F,
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()};
  std::vector<bf16> to(from.size());
  const int64_t n = static_cast<int64_t>(from.size());
  backend->copy(host_view(to.data(), 1, n), host_view(from.data(), 1, n));
  EXPECT_EQ(static_cast<float>(to[0]), 1.0F);
  EXPECT_EQ(static_cast<float>(to[1]), 1.0F);         // a tie goes to the even mantissa
  EXPECT_EQ(static_cast<float>(to[2]), 1.015625F);    // here the even one is above
  EXPECT_EQ(static_cast<float>(to[3]), -1.0078125F);  // just past the tie
  EXPECT_EQ(static_cast<float>(to[4]), std::numeric_limits<float>::infinity());
  EXPECT_NE(static_cast<float>(to[5]), static_cast<float>(to[5]));
}

TEST(Memory, CopyAndFillTouchOnlyTheirColumns) {
  const auto backend = make_cpu_backend(2);
  auto wide = Matrix<float>::random(5, 12, 1);
  const Matrix<float> before = wide;
  auto narrow = Matrix<float>::random(5, 4, 2);
  backend->copy(wide.view().slice_cols(4, 4), narrow.view());
  backend->fill_zero(wide.view().slice_cols(8, 4));
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t c = 0; c < 12; ++c) {
      const float expected = c < 4 ? before.data[static_cast<size_t>(r * 12 + c)] : c < 8 ? narrow.row(r)[c - 4] : 0;
      EXPECT_EQ(wide.row(r)[c], expected);
    }
  }
}

TEST(Memory, DescriptionNamesTheDevice) {
  const std::string text = make_cpu_backend(3)->description();
  EXPECT_NE(text.find("CPU, 3 threads"), std::string::npos) << text;
  EXPECT_NE(text.find(cpu_has_native_bf16() ? "native bf16" : "no native bf16"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::backend
