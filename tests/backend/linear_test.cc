#include <omp.h>

#include <cmath>

#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::MasterOf;
using testing::Matrix;
using testing::Results;
using testing::Size;

const StepState kState{.seed = 5, .step = 3, .first_source = 17, .first_target = 40};
constexpr uint32_t kPlace = 9;
constexpr int64_t kMargin = 3;  // columns of a wider matrix left and right of a strided view

struct Case {
  int64_t rows, in, out;
  bool bias = false;
  Activation activation = Activation::none;
  float rate = 0;
  bool strided = false;
  bool accumulate = false;
};

// Rows in parts, each of another size, with as many digits as f32 has.
struct PartedRows {
  static constexpr int64_t kRows = 700;
  const std::vector<int32_t> cuts{0, 1, 1, 64, 131, 200, 330, 512, 513, 700};
  Size size;
  Matrix<float> dy{Matrix<float>::random(kRows, size.rows, 1)}, x{Matrix<float>::random(kRows, size.cols, 2)};

  explicit PartedRows(const Size& wanted) : size(wanted) {
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      const float factor = std::exp2(-static_cast<float>(29 * part % 60)) / 3000;
      std::for_each(dy.row(cuts[part]), dy.row(cuts[part + 1]), [&](float& value) { value *= factor; });
    }
    std::for_each(x.data.begin(), x.data.end(), [](float& value) { value *= 1.0F / 3; });
  }

  // dw, then dbias, of the parts [begin, end).
  std::vector<double> gradients(size_t begin, size_t end, int threads) {
    std::vector<int32_t> parts;
    for (size_t i = begin; i <= end; ++i) {
      parts.push_back(cuts[i] - cuts[begin]);
    }
    Matrix<double> dw = Matrix<double>::random(size.rows, size.cols, 3),
                   dbias = Matrix<double>::random(1, size.rows, 4);
    const WeightGradient gradient{.dw = dw.view(),
                                  .dbias = dbias.view(),
                                  .dy = dy.view().slice_rows(cuts[begin], parts.back()),
                                  .x = x.view().slice_rows(cuts[begin], parts.back())};
    make_cpu_backend(threads)->run(
        op::LinearBackwardWeights{.gradients = {&gradient, 1}, .parts = parts, .accumulate = false});
    dw.data.insert(dw.data.end(), dbias.data.begin(), dbias.data.end());
    return dw.data;
  }
};

// f64 gradients of f32 rows: the same bits whoever sums up which parts, in whatever order the sums are added.
TEST(LinearBackwardWeight, SumsOfPartsDoNotDependOnWhoHasThem) {
  for (const Size& size : {Size{33, 65}, Size{513, 40}, Size{5, 1030}, Size{1, 1}}) {
    PartedRows rows(size);
    const size_t last = rows.cuts.size() - 1;
    const std::vector<double> whole = rows.gradients(0, last, 1);
    EXPECT_TRUE(rows.gradients(0, last, 3) == whole);
    for (const std::vector<size_t>& ends : {std::vector<size_t>{1, 3, 4, last}, {2, 6, last}, {5, last}}) {
      for (const bool backwards : {false, true}) {
        std::vector<std::vector<double>> shares;
        for (size_t i = 0; i < ends.size(); ++i) {
          shares.push_back(rows.gradients(i == 0 ? 0 : ends[i - 1], ends[i], 1));
        }
        if (backwards) {
          std::reverse(shares.begin(), shares.end());
        }
        for (size_t i = 1; i < shares.size(); ++i) {
          std::transform(shares[i].begin(), shares[i].end(), shares[0].begin(), shares[0].begin(), std::plus<>());
        }
        EXPECT_TRUE(shares[0] == whole) << size.rows << " x " << size.cols;
      }
    }
  }
}

// x -> y -> the gradients of x, w and bias for a given dy; x is taken to have had the same activation and dropout.
template <class T>
struct Linear {
  Case c;
  int64_t margin;
  Matrix<T> x, w, bias, y, pre, dy, dx, saved;
  Matrix<MasterOf<T>> dw, dbias;

  explicit Linear(const Case& options)
      : c(options),
        margin(options.strided ? kMargin : 0),
        x(Matrix<T>::random(c.rows, c.in + 2 * margin, 1)),
        w(Matrix<T>::random(c.out, c.in, 2)),
        bias(Matrix<T>::random(1, c.out, 3)),
        y(Matrix<T>::random(c.rows, c.out + 2 * margin, 4)),
        pre(c.rows, c.out + 2 * margin),
        dy(Matrix<T>::random(c.rows, c.out + 2 * margin, 5)),
        dx(Matrix<T>::random(c.rows, c.in + 2 * margin, 6)),
        saved(Matrix<T>::random(c.rows, c.in + 2 * margin, 7, 2)),
        dw(Matrix<MasterOf<T>>::random(c.out, c.in, 8)),
        dbias(Matrix<MasterOf<T>>::random(1, c.out, 9)) {
    if (c.activation == Activation::relu) {  // an output of relu and dropout
      for (T& value : saved.data) {
        value = static_cast<float>(value) > 0 ? value : T();
      }
    }
  }

  View inner(Matrix<T>& matrix) { return matrix.view().slice_cols(margin, matrix.cols - 2 * margin); }
  Dropout dropout() const { return {c.rate, kPlace, Side::target, &kState}; }
  bool with_pre() const { return c.activation == Activation::gelu || c.activation == Activation::swish; }

  void forward(Backend& backend) {
    backend.run(op::Linear{.y = inner(y),
                           .pre = with_pre() ? inner(pre) : View{},
                           .x = inner(x),
                           .w = w.view(),
                           .bias = c.bias ? bias.view() : View{},
                           .activation = c.activation,
                           .dropout = dropout()});
  }
  void backward(Backend& backend) {
    backend.run(op::LinearBackwardInput{.dx = inner(dx),
                                        .dy = inner(dy),
                                        .w = w.view(),
                                        .saved = c.activation == Activation::none ? View{} : inner(saved),
                                        .activation = c.activation,
                                        .dropout = dropout(),
                                        .accumulate = c.accumulate});
    backend.run(op::LinearBackwardWeights{
        .gradients = testing::one(
            WeightGradient{.dw = dw.view(), .dbias = c.bias ? dbias.view() : View{}, .dy = inner(dy), .x = inner(x)})});
  }

  Results results() {
    Results all;
    append(all, y.data);
    if (with_pre()) {
      append(all, pre.data);
    }
    append(all, dx.data);
    append(all, dw.data);
    append(all, dbias.data);
    return all;
  }
};

template <class T>
Results run(Backend& backend, const Case& options) {
  Linear<T> linear(options);
  linear.forward(backend);
  linear.backward(backend);
  return linear.results();
}

// loss = sum(y * dy) where y = linear(h) and h = dropout(activation(u)) is the output of the layer before.
TEST(Linear, GradientsAreCentralDifferences) {
  const auto backend = make_cpu_backend(1);
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::swish}) {
    for (const int bits : {0, 1, 2, 3}) {
      constexpr int64_t kRows = 5, kIn = 6, kHidden = 11, kOut = 4;
      const Dropout dropout{(bits & 1) != 0 ? 0.4F : 0, kPlace, Side::source, &kState};
      auto x = Matrix<double>::random(kRows, kIn, 1), w1 = Matrix<double>::random(kHidden, kIn, 2),
           b1 = Matrix<double>::random(1, kHidden, 3), w2 = Matrix<double>::random(kOut, kHidden, 4),
           b2 = Matrix<double>::random(1, kOut, 5), dy = Matrix<double>::random(kRows, kOut, 6);
      Matrix<double> h(kRows, kHidden), pre(kRows, kHidden), y(kRows, kOut), dx(kRows, kIn), dpre(kRows, kHidden),
          dw1(kHidden, kIn), db1(1, kHidden), dw2(kOut, kHidden), db2(1, kOut);
      const bool bias = (bits & 2) != 0;
      const auto optional = [bias](Matrix<double>& m) { return bias ? m.view() : View{}; };
      const auto loss = [&] {
        backend->run(op::Linear{.y = h.view(),
                                .pre = pre.view(),
                                .x = x.view(),
                                .w = w1.view(),
                                .bias = optional(b1),
                                .activation = activation,
                                .dropout = dropout});
        backend->run(op::Linear{.y = y.view(), .x = h.view(), .w = w2.view(), .bias = optional(b2)});
        return testing::dot(y.span(), dy.span());
      };
      loss();
      const View saved = activation == Activation::relu ? h.view() : pre.view();
      backend->run(op::LinearBackwardWeights{
          .gradients =
              testing::one(WeightGradient{.dw = dw2.view(), .dbias = optional(db2), .dy = dy.view(), .x = h.view()})});
      Matrix<double> sums(1, kHidden);
      backend->run(op::LinearBackwardInput{.dx = dpre.view(),
                                           .column_sums = optional(sums),
                                           .dy = dy.view(),
                                           .w = w2.view(),
                                           .saved = saved,
                                           .activation = activation,
                                           .dropout = dropout});
      backend->run(
          op::LinearBackwardWeights{.gradients = testing::one(WeightGradient{
                                        .dw = dw1.view(), .dbias = optional(db1), .dy = dpre.view(), .x = x.view()})});
      backend->run(op::LinearBackwardInput{.dx = dx.view(), .dy = dpre.view(), .w = w1.view()});
      const auto check = [&](Matrix<double>& gradient, Matrix<double>& parameter, const char* name) {
        std::vector<double> numeric(parameter.data.size());
        testing::numeric_gradient(std::span(numeric), parameter.span(), loss);
        EXPECT_TRUE(testing::close(gradient.span(), std::span(numeric), 1e-8, 1e-6))
            << name << ", activation " << static_cast<int>(activation) << ", options " << bits;
      };
      check(dx, x, "x");
      check(dw1, w1, "w1");
      check(dw2, w2, "w2");
      if (bias) {
        check(db1, b1, "b1");
        check(sums, b1, "b1 by column sums");
        check(db2, b2, "b2");
      }
    }
  }
}

const Case kThreadCases[] = {{700, 130, 1200, true, Activation::gelu, 0.1F, true, true},
                             {1337, 256, 192, true, Activation::relu, 0.1F},
                             {40, 1030, 520, false, Activation::none},
                             {2100, 64, 48, true, Activation::none, 0, false, true}};

TEST(Linear, SameBitsAtAnyThreadCount) {
  for (const Case& c : kThreadCases) {
    testing::expect_same_bits_at_any_thread_count([&](Backend& backend) { return run<float>(backend, c); });
    testing::expect_same_bits_at_any_thread_count([&](Backend& backend) { return run<bf16>(backend, c); });
  }
}

// One call at a time may own oneDNN's own threads or none: the caller's OpenMP settings neither matter nor change.
TEST(Linear, SameBitsWhateverOpenMpIsSetTo) {
  const int kept = omp_get_max_threads();
  for (const Case& c : kThreadCases) {
    const auto backend = make_cpu_backend(1);
    omp_set_num_threads(1);
    const Results narrow = run<float>(*backend, c), narrow16 = run<bf16>(*backend, c);
    omp_set_num_threads(7);
    EXPECT_EQ(run<float>(*backend, c), narrow);
    EXPECT_EQ(run<bf16>(*backend, c), narrow16);
    EXPECT_EQ(omp_get_max_threads(), 7);
  }
  omp_set_num_threads(kept);
}

TEST(Linear, RowsDoNotDependOnOtherRows) {
  const auto backend = make_cpu_backend(2);
  constexpr int64_t kRows = 300;
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{512, 512},
                                {2048, 512},
                                {512, 2048},
                                {128, 8000},
                                {1024, 256},
                                {256, 100},
                                {65, 37},
                                {128, 128}}) {
    Linear<float> all({kRows, in, out, true, Activation::swish});
    all.forward(*backend);
    for (const int64_t count : {1, 2, 3, 7, 15, 16, 17, 64, 65, 129, 299}) {
      for (const int64_t begin : {int64_t{0}, int64_t{1}, kRows - count}) {
        Matrix<float> y(count, out), pre(count, out);
        backend->run(op::Linear{.y = y.view(),
                                .pre = pre.view(),
                                .x = all.x.view().slice_rows(begin, count),
                                .w = all.w.view(),
                                .bias = all.bias.view(),
                                .activation = Activation::swish});
        EXPECT_EQ(std::memcmp(y.data.data(), all.y.row(begin), y.data.size() * sizeof(float)), 0)
            << count << " rows from " << begin << " of [" << in << " -> " << out << "]";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::backend
