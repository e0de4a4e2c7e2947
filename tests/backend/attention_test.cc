#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::ints;
using testing::MasterOf;
using testing::Matrix;
using testing::Results;

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

template <class T>
Results run(Backend& backend, const Case& shape) {
  Attention<T> attention(shape);
  attention.forward(backend);
  attention.backward(backend);
  Results results;
  append(results, attention.out.data);
  append(results, attention.log_sums.data);
  append(results, attention.dq.data);
  append(results, attention.dkv.data);
  return results;
}

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

TEST(Attention, EveryTypeAgreesWithF64) {
  const auto backend = make_cpu_backend(2);
  const std::vector<int32_t> lengths = {1, 2, 63, 0, 64, 65, 31};
  const std::vector<int32_t> others = {65, 1, 2, 5, 33, 17, 0};
  for (const int64_t width : {32, 64, 20}) {
    for (const float rate : {0.0F, 0.3F}) {
      for (const Case& shape :
           {Case{lengths, lengths, 2, width, true, rate}, Case{lengths, lengths, 2, width, false, rate, 3},
            Case{lengths, others, 3, width, false, rate, 1}, Case{{1}, {1}, 1, width, true, rate}}) {
        const Results expected = run<double>(*backend, shape);
        EXPECT_TRUE(testing::all_close(run<float>(*backend, shape), expected, 2e-6, 1e-4));
        EXPECT_TRUE(testing::all_close(run<bf16>(*backend, shape), expected, 3e-2, 2e-2));
      }
    }
  }
  const Case longest{{256}, {256}, 1, 64, true, 0.1F};
  EXPECT_TRUE(testing::all_close(run<float>(*backend, longest), run<double>(*backend, longest), 2e-6, 1e-4));
}

TEST(Attention, RowsPastTheLastSentenceAreZero) {
  const auto backend = make_cpu_backend(2);
  Attention<float> attention({{4, 3}, {5, 2}, 2, 32, false, 0, 3});
  attention.forward(*backend);
  attention.backward(*backend);
  for (int64_t spare = 0; spare < 3; ++spare) {
    for (int64_t c = 0; c < attention.cols; ++c) {
      ASSERT_EQ(attention.out.row(7 + spare)[c], 0);
      ASSERT_EQ(attention.dq.row(7 + spare)[c], 0);
      ASSERT_EQ(attention.dkv.row(7 + spare)[c], 7);  // not attention's columns
      ASSERT_EQ(attention.dkv.row(7 + spare)[attention.cols + c], 0);
      ASSERT_EQ(attention.dkv.row(7 + spare)[2 * attention.cols + c], 0);
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

TEST(Attention, SameBitsAtAnyThreadCount) {
  for (const bool causal : {false, true}) {
    testing::expect_same_bits_at_any_thread_count([causal](Backend& backend) {
      return run<float>(backend, {{30, 1, 65, 17, 2, 40}, {30, 1, 65, 17, 2, 40}, 4, 32, causal, 0.1F});
    });
  }
}

}  // namespace
}  // namespace tandem::backend
