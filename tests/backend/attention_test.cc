#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::ints;
using testing::MasterOf;
using testing::Matrix;

const StepState kState{.seed = 31, .step = 8, .first_source = 3, .first_target = 40};

struct Case {
  std::vector<int32_t> queries, keys;  // lengths of the sentences
  int heads = 2;
  int64_t width = 32;  // of a head
  bool causal = false;
  float rate = 0;
  int64_t spare = 0;  // rows past the last sentence
};

std::vector<int32_t> starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) {
    starts.push_back(starts.back() + length);
  }
  return starts;
}

// Keys and values are columns of one wider matrix, as the model has them.
template <class T>
struct Attention {
  using M = MasterOf<T>;
  Case shape;
  std::vector<int32_t> query_starts, key_starts;
  int64_t query_rows, key_rows, cols;
  Matrix<T> q, kv, out, dout, dq, dkv;
  Matrix<M> log_sums;

  explicit Attention(const Case& c)
      : shape(c),
        query_starts(starts_of(c.queries)),
        key_starts(starts_of(c.keys)),
        query_rows(query_starts.back() + c.spare),
        key_rows(key_starts.back() + c.spare),
        cols(c.heads * c.width),
        q(Matrix<T>::random(query_rows, cols, 1, 2)),
        kv(Matrix<T>::random(key_rows, 3 * cols, 2)),
        out(Matrix<T>::filled(query_rows, cols, 7)),
        dout(Matrix<T>::random(query_rows, cols, 3)),
        dq(Matrix<T>::filled(query_rows, cols, 7)),
        dkv(Matrix<T>::filled(key_rows, 3 * cols, 7)),
        log_sums(Matrix<M>::filled(c.heads, query_rows, 7)) {}

  View part(Matrix<T>& matrix, int64_t i) { return matrix.view().slice_cols(i * cols, cols); }

  AttentionShape view() {
    return {
        shape.heads, shape.causal, ints(query_starts), ints(key_starts), 0, 0, {shape.rate, 20, Side::target, &kState}};
  }
  void forward(Backend& backend) {
    backend.run(op::Attention{.out = out.view(),
                              .log_sums = log_sums.view(),
                              .q = q.view(),
                              .k = part(kv, 1),
                              .v = part(kv, 2),
                              .shape = view()});
  }
  void backward(Backend& backend) {
    backend.run(op::AttentionBackward{.dq = dq.view(),
                                      .dk = part(dkv, 1),
                                      .dv = part(dkv, 2),
                                      .dout = dout.view(),
                                      .out = out.view(),
                                      .log_sums = log_sums.view(),
                                      .q = q.view(),
                                      .k = part(kv, 1),
                                      .v = part(kv, 2),
                                      .shape = view()});
  }
};

TEST(Attention, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  Matrix<double> q(2, 1), k(2, 1), v(2, 1), out(2, 1), log_sums(1, 2);
  q.data = {1, 2};
  k.data = {0, std::log(3.0)};
  v.data = {10, 20};
  std::vector<int32_t> starts = {0, 2};
  AttentionShape shape;
  shape.query_starts = shape.key_starts = ints(starts);
  backend->run(op::Attention{
      .out = out.view(), .log_sums = log_sums.view(), .q = q.view(), .k = k.view(), .v = v.view(), .shape = shape});
  EXPECT_NEAR(out.data[0], 10 * 0.25 + 20 * 0.75, 1e-12);
  EXPECT_NEAR(out.data[1], 10 * 0.1 + 20 * 0.9, 1e-12);
  EXPECT_NEAR(log_sums.data[0], std::log(4.0), 1e-12);
  EXPECT_NEAR(log_sums.data[1], std::log(10.0), 1e-12);
  shape.causal = true;
  backend->run(op::Attention{.out = out.view(), .q = q.view(), .k = k.view(), .v = v.view(), .shape = shape});
  EXPECT_NEAR(out.data[0], 10, 1e-12);
  EXPECT_NEAR(out.data[1], 19, 1e-12);
}

TEST(Attention, BackwardMatchesCentralDifferences) {
  const auto backend = make_cpu_backend(1);
  for (const float rate : {0.0F, 0.3F}) {
    for (const Case& shape :
         {Case{{3, 1, 8}, {3, 1, 8}, 2, 5, true, rate}, Case{{3, 1, 8}, {3, 1, 8}, 2, 5, false, rate},
          Case{{2, 7, 4, 0}, {9, 1, 0, 3}, 3, 4, false, rate, 2}}) {
      Attention<double> attention(shape);
      const auto loss = [&] {
        attention.forward(*backend);
        return testing::dot(attention.out.data, attention.dout.data);
      };
      loss();
      attention.backward(*backend);
      Matrix<double> dq(attention.q.rows, attention.q.cols), dkv(attention.kv.rows, attention.kv.cols);
      testing::numeric_gradient(dq.span(), attention.q.span(), loss);
      testing::numeric_gradient(dkv.span(), attention.kv.span(), loss);
      EXPECT_TRUE(testing::close(attention.dq.span(), dq.span(), 1e-8, 1e-6));
      backend->fill_zero(attention.dkv.view().slice_cols(0, attention.cols));  // columns that attention leaves alone
      EXPECT_TRUE(testing::close(attention.dkv.span(), dkv.span(), 1e-8, 1e-6));
    }
  }
}

// A sentence gets the same bits alone as in a batch, given its place in the global batch.
TEST(Attention, ASentenceDoesNotDependOnTheOthers) {
  const auto backend = make_cpu_backend(2);
  Attention<float> batch({{7, 20, 5}, {7, 20, 5}, 2, 32, true, 0.3F});
  batch.forward(*backend);
  Attention<float> alone({{20}, {20}, 2, 32, true, 0.3F});
  std::copy_n(batch.q.row(7), alone.q.data.size(), alone.q.data.begin());
  std::copy_n(batch.kv.row(7), alone.kv.data.size(), alone.kv.data.begin());
  StepState state = kState;
  state.first_target += 7;
  AttentionShape shape = alone.view();
  shape.dropout.state = &state;
  backend->run(op::Attention{.out = alone.out.view(),
                             .q = alone.q.view(),
                             .k = alone.part(alone.kv, 1),
                             .v = alone.part(alone.kv, 2),
                             .shape = shape});
  EXPECT_TRUE(std::equal(alone.out.data.begin(), alone.out.data.end(), batch.out.row(7)));
}

TEST(Attention, DropoutKeepsTheMean) {
  const auto backend = make_cpu_backend(2);
  Attention<double> attention({{64, 64}, {64, 64}, 4, 32, false, 0.3F});
  std::fill(attention.kv.data.begin(), attention.kv.data.end(), 1.0);  // every output is the sum of its weights
  attention.forward(*backend);
  double sum = 0;
  for (const double value : attention.out.data) {
    sum += value;
  }
  EXPECT_NEAR(sum / static_cast<double>(attention.out.data.size()), 1, 0.02);
}

}  // namespace
}  // namespace tandem::backend
