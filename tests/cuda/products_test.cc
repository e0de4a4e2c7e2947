#include "backend/cuda/products.h"

#include <gtest/gtest.h>

#include <deque>

namespace tandem::backend::cuda {
namespace {

using enum ProductKernel;

constexpr Chip kH200{
    .processors = 132, .hopper = true, .clusters_of_4 = 30, .sums = 8 << 20, .scratch_bytes = 48 << 20};
constexpr Chip kA100{.processors = 108, .sums = 8 << 20, .scratch_bytes = 48 << 20};

// At an address that is a multiple of 256, but for `off` bytes; columns of a matrix that is `wider`.
View matrix(int64_t rows, int64_t cols, DType type = DType::bf16, uintptr_t off = 0, int64_t wider = 0) {
  View view = make_view(reinterpret_cast<void*>(0x10000 + off), type, rows, cols + wider, Memory::device);
  view.cols = cols;
  return view;
}
View gate_of(int64_t rows, int64_t cols) { return matrix(rows, (cols + 31) / 32, DType::i32); }
Dropout rate(float rate) { return {.rate = rate}; }

op::Linear linear(int64_t rows, int64_t in, int64_t out) {
  return {.y = matrix(rows, out), .x = matrix(rows, in), .w = matrix(out, in), .bias = matrix(1, out)};
}
// The feed-forward's first product, in training.
op::Linear inner(int64_t rows, int64_t in, int64_t out) {
  op::Linear op = linear(rows, in, out);
  op.gate = gate_of(rows, out);
  op.activation = Activation::relu;
  op.dropout = rate(0.1F);
  return op;
}
op::LinearBackwardInput inner_backward(int64_t rows, int64_t in, int64_t out) {
  return {.dx = matrix(rows, out),
          .column_sums = matrix(1, out, DType::f32),
          .dy = matrix(rows, in),
          .w = matrix(in, out),
          .saved = matrix(rows, out),
          .gate = gate_of(rows, out),
          .activation = Activation::relu,
          .dropout = rate(0.1F)};
}
op::LinearResidualNorm norm(int64_t rows, int64_t cols, int64_t depth) {
  return {.sum = matrix(rows, cols),
          .normed = matrix(rows, cols),
          .statistics = matrix(rows, 2, DType::f32),
          .branch = matrix(rows, cols),
          .x = matrix(rows, depth),
          .w = matrix(cols, depth),
          .bias = matrix(1, cols),
          .residual = matrix(rows, cols),
          .gamma = matrix(1, cols, DType::f32),
          .beta = matrix(1, cols, DType::f32),
          .dropout = rate(0.1F)};
}
WeightGradient gradient(int64_t tokens, int64_t out, int64_t in) {
  return {.dw = matrix(out, in, DType::f32), .dy = matrix(tokens, out), .x = matrix(tokens, in)};
}
op::ProjectedLoss loss(int64_t rows, int64_t d, int64_t pieces) {
  return {.dx = matrix(rows, d),
          .dw = matrix(pieces, d, DType::f32),
          .logits = matrix(rows + 8, pieces),
          .x = matrix(rows, d),
          .w = matrix(pieces, d),
          .labels = matrix(1, rows, DType::i32),
          .smoothing = 0.1F};
}

template <class Op>
void expect_both(ProductKernel on_h200, ProductKernel elsewhere, const Op& op) {
  EXPECT_EQ(kernel_of(op, kH200), on_h200);
  EXPECT_EQ(kernel_of(op, kA100), elsewhere);
}
void expect_pair(ProductKernel kernel, const WeightGradient& a, const WeightGradient& b) {
  const WeightGradient both[] = {a, b};
  expect_both(kernel, cublas, op::LinearBackwardWeights{.gradients = both});
}

TEST(CudaProducts, PlainOnesAreCublas) {
  for (const int64_t rows : {1, 64, 512, 4000, 25024}) {  // decoding and training
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{512, 1536}, {512, 512}, {128, 256}, {33, 40}}) {
      op::Linear op = linear(rows, in, out);
      expect_both(cublas, cublas, op);
      op.activation = Activation::relu;  // decoding: no dropout, no gate
      expect_both(cublas, cublas, op);
      op.bias = {};
      expect_both(cublas, cublas, op);
      expect_both(cublas, cublas, op::LinearBackwardInput{.dx = op.y, .dy = op.x, .w = op.w, .accumulate = true});
    }
  }
}

TEST(CudaProducts, FeedForwardInTraining) {
  for (const int64_t rows : {1, 1000, 4000, 25024}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{128, 256}, {256, 1024}, {512, 2048}, {1024, 4096}}) {
      expect_both(fused, cublas_and_passes, inner(rows, in, out));
      expect_both(fused, cublas_and_passes, inner_backward(rows, in, out));
    }
  }
  op::Linear op = inner(4000, 512, 2048);
  op.dropout = {};  // the gate alone
  expect_both(fused, cublas_and_passes, op);
  op.gate = {};
  expect_both(cublas, cublas, op);
  op.dropout = rate(0.1F);
  expect_both(fused, cublas_and_passes, op);
  for (const Activation other : {Activation::none, Activation::gelu, Activation::swish}) {
    op.activation = other;
    expect_both(cublas_and_passes, cublas_and_passes, op);
  }
  op::LinearBackwardInput back = inner_backward(4000, 512, 2048);
  back.column_sums = {};
  expect_both(fused, cublas_and_passes, back);
  back.gate = {};
  expect_both(cublas_and_passes, cublas_and_passes, back);
  back.activation = Activation::none;
  back.dropout = {};
  expect_both(cublas, cublas, back);
  back.column_sums = matrix(1, 2048, DType::f32);
  expect_both(cublas_and_passes, cublas_and_passes, back);
}

TEST(CudaProducts, FeedForwardOfOddSizesAndAddresses) {
  expect_both(cublas_and_passes, cublas_and_passes, inner(4000, 512, 2000));
  expect_both(cublas_and_passes, cublas_and_passes, inner(4000, 520, 2048));
  expect_both(cublas_and_passes, cublas_and_passes, inner_backward(4000, 500, 2048));
  const auto with = [](auto member, const View& view) {
    op::Linear op = inner(4000, 512, 2048);
    op.*member = view;
    return kernel_of(op, kH200);
  };
  EXPECT_EQ(with(&op::Linear::y, matrix(4000, 2048, DType::bf16, 0, 8)), fused);
  EXPECT_EQ(with(&op::Linear::y, matrix(4000, 2048, DType::bf16, 0, 4)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::y, matrix(4000, 2048, DType::bf16, 8)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::x, matrix(4000, 512, DType::bf16, 2)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::w, matrix(2048, 512, DType::bf16, 2)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::bias, matrix(1, 2048, DType::bf16, 2)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::bias, View{}), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::gate, matrix(4000, 64, DType::i32, 4)), cublas_and_passes);
  EXPECT_EQ(with(&op::Linear::gate, matrix(4000, 64, DType::i32, 0, 1)), cublas_and_passes);
  Chip little = kH200;
  little.sums = 1 << 16;  // no room for the sums of 4,000 rows in parts of 64
  EXPECT_EQ(kernel_of(inner_backward(4000, 512, 2048), little), cublas_and_passes);
}

TEST(CudaProducts, WithTheNorm) {
  struct {
    int64_t rows, cols, depth;
    ProductKernel kernel;
  } const cases[] = {
      {25024, 512, 512, norm_of_2},            // base, many rows
      {25024, 512, 2048, norm_of_2},           //
      {12512, 512, 512, norm_of_2},            // 98 tiles in two rounds of 66 clusters
      {12512, 512, 2048, cublas_and_passes},   //
      {8000, 512, 2048, norm_of_2},            // 63 tiles
      {4000, 512, 512, cublas_and_passes},     // 32 tiles: half of the GPU would be idle
      {512, 512, 512, cublas_and_passes},      // decoding
      {0, 512, 512, cublas_and_passes},        //
      {25024, 1024, 1024, norm_of_4},          // big
      {25024, 1024, 4096, cublas_and_passes},  //
      {25024, 128, 256, cublas_and_passes},    // tiny
      {25024, 256, 1024, cublas_and_passes},   // small
      {25024, 512, 520, cublas_and_passes},    // odd
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} rows of {} from {}", c.rows, c.cols, c.depth));
    expect_both(c.kernel, cublas_and_passes, norm(c.rows, c.cols, c.depth));
  }
  const auto with = [](auto member, const auto& value) {
    op::LinearResidualNorm op = norm(25024, 512, 512);
    op.*member = value;
    return kernel_of(op, kH200);
  };
  using Op = op::LinearResidualNorm;
  EXPECT_EQ(with(&Op::bias, ConstView{}), norm_of_2);
  EXPECT_EQ(with(&Op::dropout, rate(0)), norm_of_2);
  EXPECT_EQ(with(&Op::dropout, rate(0.5F)), cublas_and_passes);  // a threshold that the quick comparison does not take
  EXPECT_EQ(with(&Op::sum, View{}), cublas_and_passes);
  EXPECT_EQ(with(&Op::normed, matrix(25024, 512, DType::bf16, 8)), cublas_and_passes);
  EXPECT_EQ(with(&Op::residual, matrix(25024, 512, DType::bf16, 0, 4)), cublas_and_passes);
  EXPECT_EQ(with(&Op::statistics, matrix(25024, 2, DType::f32, 4)), cublas_and_passes);
  Chip none = kH200;
  none.clusters_of_4 = 0;
  EXPECT_EQ(kernel_of(norm(25024, 1024, 1024), none), cublas_and_passes);
}

TEST(CudaProducts, GradientsOfWeights) {
  for (const int64_t tokens : {1, 1000, 4000, 8192}) {
    expect_pair(pair_64, gradient(tokens, 128, 128), gradient(tokens, 384, 128));  // tiny's attention
    expect_pair(pair_64, gradient(tokens, 512, 512), gradient(tokens, 512, 512));  // base's, to the source
    expect_pair(pair_128, gradient(tokens, 512, 512), gradient(tokens, 1536, 512));
    expect_pair(pair_256, gradient(tokens, 512, 2048), gradient(tokens, 2048, 512));  // base's feed-forward
    expect_pair(cublas, gradient(tokens, 1024, 1024), gradient(tokens, 3072, 1024));  // big: too many for one round
  }
  expect_pair(cublas, gradient(8193, 512, 512), gradient(8193, 512, 512));
  expect_pair(cublas, gradient(1000, 512, 512), gradient(1001, 512, 512));
  expect_pair(cublas, gradient(0, 512, 512), gradient(0, 512, 512));
  expect_pair(cublas, gradient(1000, 512, 520), gradient(1000, 512, 512));
  WeightGradient odd = gradient(1000, 512, 512);
  const WeightGradient even = odd;
  odd.dw = matrix(512, 512, DType::f32, 8);
  expect_pair(cublas, even, odd);
  odd = even;
  odd.x = matrix(1000, 512, DType::bf16, 0, 4);
  expect_pair(cublas, odd, even);
  expect_both(cublas, cublas, op::LinearBackwardWeights{.gradients = {&even, 1}});
}

TEST(CudaProducts, Loss) {
  expect_both(fused, cublas_and_passes, loss(12544, 512, 32000));  // base
  expect_both(fused, cublas_and_passes, loss(12544, 1024, 32000));
  expect_both(fused, cublas_and_passes, loss(1, 128, 8000));
  expect_both(cublas_and_passes, cublas_and_passes, loss(0, 512, 32000));
  expect_both(cublas_and_passes, cublas_and_passes, loss(1000, 512, 32001));
  expect_both(cublas_and_passes, cublas_and_passes, loss(1000, 1088, 32000));
  expect_both(cublas_and_passes, cublas_and_passes, loss(1000, 100, 32000));
  expect_both(cublas_and_passes, cublas_and_passes, loss(40000, 1024, 32000));  // more than the scratch memory
  op::ProjectedLoss odd = loss(1000, 512, 32000);
  odd.dx = matrix(1000, 512, DType::bf16, 8);
  expect_both(cublas_and_passes, cublas_and_passes, odd);
}

}  // namespace
}  // namespace tandem::backend::cuda
