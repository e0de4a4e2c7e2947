#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::MasterOf;
using testing::Matrix;

const StepState kState{.seed = 99, .step = 4, .first_source = 6, .first_target = 5};

struct Options {
  bool branch = true;
  bool keep_sum = true;
  bool dsum = true;
  float rate = 0;
  bool accumulate = true;
};

const Options kOptions[] = {{},
                            {.branch = false},
                            {.rate = 0.3F},
                            {.keep_sum = false, .rate = 0.3F},
                            {.dsum = false, .rate = 0.3F},
                            {.rate = 0.3F, .accumulate = false},
                            {.branch = false, .dsum = false, .rate = 0.3F}};

template <class T>
struct Norm {
  using M = MasterOf<T>;
  Options options;
  Matrix<T> residual, branch, sum, normed, dnormed, dsum, dresidual, dbranch;
  Matrix<M> gamma, beta, statistics, dgamma, dbeta, dbias;

  Norm(int64_t rows, int64_t cols, Options o)
      : options(o),
        residual(Matrix<T>::random(rows, cols, 1, 2)),
        branch(Matrix<T>::random(rows, cols, 2)),
        sum(rows, cols),
        normed(rows, cols),
        dnormed(Matrix<T>::random(rows, cols, 3)),
        dsum(Matrix<T>::random(rows, cols, 4)),
        dresidual(rows, cols),
        dbranch(rows, cols),
        gamma(Matrix<M>::random(1, cols, 5)),
        beta(Matrix<M>::random(1, cols, 6)),
        statistics(rows, 2),
        dgamma(Matrix<M>::random(1, cols, 7)),
        dbeta(Matrix<M>::random(1, cols, 8)),
        dbias(Matrix<M>::random(1, cols, 9)) {}

  View optional(bool present, Matrix<T>& matrix) { return present ? matrix.view() : View{}; }
  Dropout dropout() const { return {options.rate, 12, Side::target, &kState}; }

  void forward(Backend& backend, bool keep_sum) {
    backend.run(op::ResidualNorm{.sum = optional(keep_sum, sum),
                                 .normed = normed.view(),
                                 .statistics = statistics.view(),
                                 .residual = residual.view(),
                                 .branch = optional(options.branch, branch),
                                 .gamma = gamma.view(),
                                 .beta = beta.view(),
                                 .dropout = dropout()});
  }
  void backward(Backend& backend) {
    backend.run(op::ResidualNormBackward{.dresidual = dresidual.view(),
                                         .dbranch = optional(options.branch, dbranch),
                                         .dgamma = dgamma.view(),
                                         .dbeta = dbeta.view(),
                                         .dbias = options.branch ? dbias.view() : View{},
                                         .dnormed = dnormed.view(),
                                         .dsum = optional(options.dsum, dsum),
                                         .sum = sum.view(),
                                         .statistics = statistics.view(),
                                         .gamma = gamma.view(),
                                         .dropout = dropout(),
                                         .accumulate = options.accumulate});
  }
};

TEST(ResidualNorm, HandMadeValues) {
  const auto backend = make_cpu_backend(2);
  Matrix<float> residual(1, 4), branch(1, 4), sum(1, 4), normed(1, 4), statistics(1, 2), gamma(1, 4), beta(1, 4);
  residual.data = {1, 2, 3, 4};
  branch.data = {1, 1, 1, 1};
  gamma.data = {1, 2, 1, -1};
  beta.data = {0, 0, 10, 0};
  backend->run(op::ResidualNorm{.sum = sum.view(),
                                .normed = normed.view(),
                                .statistics = statistics.view(),
                                .residual = residual.view(),
                                .branch = branch.view(),
                                .gamma = gamma.view(),
                                .beta = beta.view()});
  EXPECT_EQ(sum.data, (std::vector<float>{2, 3, 4, 5}));
  const float rstd = 1 / std::sqrt(1.25F + 1e-6F);
  EXPECT_FLOAT_EQ(statistics.data[0], 3.5F);
  EXPECT_FLOAT_EQ(statistics.data[1], rstd);
  EXPECT_FLOAT_EQ(normed.data[0], -1.5F * rstd);
  EXPECT_FLOAT_EQ(normed.data[1], -1.0F * rstd);
  EXPECT_FLOAT_EQ(normed.data[2], 0.5F * rstd + 10);
  EXPECT_FLOAT_EQ(normed.data[3], -1.5F * rstd);
}

TEST(ResidualNorm, AConstantRowGivesBeta) {
  const auto backend = make_cpu_backend(1);
  auto x = Matrix<float>::filled(3, 64, 1.7), normed = Matrix<float>::filled(3, 64, 0);
  auto gamma = Matrix<float>::random(1, 64, 1), beta = Matrix<float>::random(1, 64, 2);
  Matrix<float> statistics(3, 2);
  backend->run(op::ResidualNorm{.normed = normed.view(),
                                .statistics = statistics.view(),
                                .residual = x.view(),
                                .gamma = gamma.view(),
                                .beta = beta.view()});
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(testing::close(std::span(normed.row(r), 64), beta.span(), 1e-3, 0));
  }
}

TEST(ResidualNorm, BackwardMatchesCentralDifferences) {
  const auto backend = make_cpu_backend(1);
  for (const Options& options : kOptions) {
    Norm<double> norm(5, 13, options);
    const auto loss = [&] {
      norm.forward(*backend, true);
      return testing::dot(norm.normed.data, norm.dnormed.data) +
             (options.dsum ? testing::dot(norm.sum.data, norm.dsum.data) : 0);
    };
    loss();
    Matrix<double> gamma_before = norm.dgamma, beta_before = norm.dbeta, bias_before = norm.dbias;
    if (!options.accumulate) {
      for (Matrix<double>* before : {&gamma_before, &beta_before, &bias_before}) {
        std::fill(before->data.begin(), before->data.end(), 0.0);
      }
    }
    norm.backward(*backend);
    const auto check = [&](Matrix<double> gradient, Matrix<double>& x) {
      Matrix<double> numeric(x.rows, x.cols);
      testing::numeric_gradient(numeric.span(), x.span(), loss);
      EXPECT_TRUE(testing::close(gradient.span(), numeric.span(), 1e-7, 1e-6));
    };
    for (size_t i = 0; i < gamma_before.data.size(); ++i) {  // gradients of parameters are added to
      norm.dgamma.data[i] -= gamma_before.data[i];
      norm.dbeta.data[i] -= beta_before.data[i];
      norm.dbias.data[i] -= bias_before.data[i];
    }
    check(norm.dresidual, norm.residual);
    check(norm.dgamma, norm.gamma);
    check(norm.dbeta, norm.beta);
    if (options.branch) {
      check(norm.dbranch, norm.branch);
      for (int64_t col = 0; col < norm.dbias.cols; ++col) {  // a bias reaches every row of the branch
        double sum = 0;
        for (int64_t row = 0; row < norm.dbranch.rows; ++row) {
          sum += norm.dbranch.row(row)[col];
        }
        EXPECT_NEAR(norm.dbias.data[static_cast<size_t>(col)], sum, 1e-12);
      }
    }
  }
}

TEST(ResidualNorm, WithoutASumTheRestIsTheSame) {
  const auto backend = make_cpu_backend(2);
  Norm<bf16> with(33, 96, {.rate = 0.3F}), without(33, 96, {.rate = 0.3F});
  with.forward(*backend, true);
  without.forward(*backend, false);
  for (size_t i = 0; i < with.normed.data.size(); ++i) {
    ASSERT_EQ(with.normed.data[i].bits, without.normed.data[i].bits);
  }
  EXPECT_EQ(with.statistics.data, without.statistics.data);
}

}  // namespace
}  // namespace tandem::backend
