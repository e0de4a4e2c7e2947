#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tensor/arena.h"
#include "tensor/parameters.h"

namespace tandem::inline tensor {
namespace {

Buffer host_buffer(size_t bytes) {
  return Buffer(std::aligned_alloc(64, (bytes + 63) / 64 * 64), bytes, Memory::host, [](void* p) { std::free(p); });
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float(bf16(1.0F)), 1.0F);
  EXPECT_EQ(float(bf16(1.0F + 0x1p-8F)), 1.0F);               // half way, to even
  EXPECT_EQ(float(bf16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);     // half way, to even
  EXPECT_EQ(float(bf16(1.0F + 0x1.02p-8F)), 1.0F + 0x1p-7F);  // above half way
  EXPECT_EQ(float(bf16(-std::numeric_limits<float>::infinity())), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(float(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(float(bf16(__builtin_bit_cast(float, 0x7F800001u)))));  // a NaN in the low bits only
}

TEST(View, SlicesAndRejects) {
  std::vector<float> data(12);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(i);
  }
  const View view = host_view(data.data(), 3, 4);
  const View part = view.slice_rows(1, 2).slice_cols(1, 2);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 2);
  EXPECT_EQ(part.stride, 4);
  EXPECT_EQ(part.host<float>()[0], 5);
  EXPECT_EQ(part.host<float>()[part.stride], 9);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(view.reshape(2, 6).cols, 6);
  EXPECT_THROW(part.reshape(4, 1), Error);
  EXPECT_THROW(view.slice_rows(2, 2), Error);
  EXPECT_THROW(view.slice_cols(-1, 2), Error);
  EXPECT_THROW(view.host<double>(), Error);
  EXPECT_THROW(make_view(data.data(), DType::f32, 3, 4, Memory::device).host<float>(), Error);
}

TEST(Arena, AllocatesNothingAfterTheFirstStep) {
  Arena arena(host_buffer);
  const auto step = [&] {
    for (int i = 0; i < 20; ++i) {
      const View view = arena.take(DType::f32, 1000, 1000 + i);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 64, 0u);
      view.host<float>()[view.size() - 1] = 1;  // the memory is really there
    }
    arena.reset();
  };
  step();
  const size_t after_first = arena.allocations();
  const size_t peak = arena.peak_bytes();
  for (int i = 0; i < 3; ++i) {
    step();
  }
  EXPECT_EQ(arena.allocations(), after_first);
  EXPECT_GE(peak, 20u * 4'000'000u);
}

TEST(Arena, ReleaseGivesBackToTheMark) {
  Arena arena(host_buffer);
  arena.reserve(1 << 20);
  const View kept = arena.take(DType::f32, 10, 10);
  const Arena::Mark mark = arena.mark();
  const View first = arena.take(DType::i32, 5, 5);
  arena.release(mark);
  const View second = arena.take(DType::f64, 3, 3);
  EXPECT_EQ(first.data, second.data);
  EXPECT_NE(kept.data, second.data);
  EXPECT_EQ(arena.allocations(), 1u);
}

TEST(Parameters, LieAlignedInOneBufferAndAreFoundAgain) {
  ParameterLayout layout;
  const auto vector = layout.add_vector("a", 3, Init::one);
  const auto first = layout.add_matrix("w1", 2, 16, Init::glorot);
  const auto second = layout.add_matrix("w2", 4, 16, Init::glorot);
  const auto table = layout.add_matrix("table", 100, 64, Init::embedding);
  EXPECT_EQ(layout.count(), 3 + 32 + 64 + 6400);
  for (const Parameter& parameter : layout.all()) {
    EXPECT_EQ(parameter.offset % 8, 0);
  }
  std::vector<float> flat(static_cast<size_t>(layout.flat_size()), 7.0F);
  const View view = host_view(flat.data(), 1, layout.flat_size());
  initialize(view, layout, 1);
  EXPECT_EQ(layout.in(view, vector).host<float>()[2], 1.0F);
  EXPECT_EQ(flat[3], 0.0F) << "alignment gaps are zero";
  const View both = layout.in(view, first, second);
  EXPECT_EQ(both.rows, 6);
  EXPECT_EQ(both.host<float>()[32], layout.in(view, second).host<float>()[0]);
  EXPECT_THROW(layout.in(view, vector, first), Error);

  double sum = 0, squares = 0;
  const float* values = layout.in(view, table).host<float>();
  for (int i = 0; i < 6400; ++i) {
    sum += values[i];
    squares += double{values[i]} * values[i];
  }
  EXPECT_NEAR(sum / 6400, 0, 0.01);
  EXPECT_NEAR(squares / 6400, 1.0 / 64, 0.002);

  std::vector<float> again(flat.size());
  initialize(host_view(again.data(), 1, layout.flat_size()), layout, 1);
  EXPECT_EQ(flat, again);
  initialize(host_view(again.data(), 1, layout.flat_size()), layout, 2);
  EXPECT_NE(flat, again);
}

}  // namespace
}  // namespace tandem::inline tensor
