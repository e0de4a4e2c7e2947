#include "backend/checked/checked_backend.h"
#include "matrix.h"
#include "temporary_directory.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

// A device that is a little wrong in one of its ops.
class Faulty : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void run(const op::Any& op) override {
    inner_.run(op);
    if (const auto* product = std::get_if<op::Linear>(&op); product != nullptr && wrong_product) {
      product->y.host<float>()[product->y.stride + 2] += 1;
    }
    if (const auto* attention = std::get_if<op::Attention>(&op); attention != nullptr && nan_in_attention) {
      attention->log_sums.host<float>()[1] = std::numeric_limits<float>::quiet_NaN();
    }
    if (const auto* several = std::get_if<op::LinearBackwardWeights>(&op); several != nullptr && wrong_gradient) {
      several->gradients[1].dw.host<float>()[3] += 1;
    }
  }

  bool wrong_product = false, nan_in_attention = false, wrong_gradient = false;
};

struct Checked {
  std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  Faulty* device = new Faulty(*cpu);  // owned by the backend
  CheckedBackend backend{std::unique_ptr<Backend>(device), 1};
  Matrix<float> x = Matrix<float>::random(9, 8, 1), w = Matrix<float>::random(5, 8, 2), y{9, 5};

  std::string product() {
    return testing::message_of([this] { backend.run(op::Linear{.y = y.view(), .x = x.view(), .w = w.view()}); });
  }
  std::string attention() {
    std::vector<int32_t> starts = {0, 4, 9};
    const AttentionShape shape{.heads = 2,
                               .causal = true,
                               .query_starts = testing::ints(starts),
                               .key_starts = testing::ints(starts),
                               .longest_query = 5,
                               .longest_key = 5,
                               .dropout = {}};
    Matrix<float> out(9, 8), sums(2, 9);
    return testing::message_of([&] {
      backend.run(op::Attention{
          .out = out.view(), .log_sums = sums.view(), .q = x.view(), .k = x.view(), .v = x.view(), .shape = shape});
    });
  }
};

TEST(CheckedBackend, SaysNothingWhereTheDeviceIsRight) {
  Checked checked;
  checked.backend.set_checking(true);
  EXPECT_EQ(checked.product(), "");
  EXPECT_EQ(checked.attention(), "");
  EXPECT_EQ(checked.backend.ops_checked(), 2);
}

TEST(CheckedBackend, NamesTheOpAndTheElementThatIsWrong) {
  Checked checked;
  checked.backend.set_checking(true);
  checked.device->wrong_product = true;
  const std::string message = checked.product();
  EXPECT_NE(message.find("linear"), std::string::npos) << message;
  EXPECT_NE(message.find("row 1, column 2"), std::string::npos) << message;
  checked.device->nan_in_attention = true;
  EXPECT_NE(checked.attention().find("attention"), std::string::npos);
}

// Each of several gradients is looked at, and what was there before counts.
TEST(CheckedBackend, SeveralGradientsInOneCall) {
  Checked checked;
  checked.backend.set_checking(true);
  auto first = Matrix<float>::random(5, 8, 6), second = Matrix<float>::random(8, 5, 7),
       bias = Matrix<float>::random(1, 5, 8), dy = Matrix<float>::random(9, 5, 9);
  const auto give = [&](Backend& backend, Matrix<float>& one, Matrix<float>& of_bias, Matrix<float>& other) {
    const WeightGradient gradients[] = {{one.view(), of_bias.view(), dy.view(), checked.x.view()},
                                        {other.view(), {}, checked.x.view(), dy.view()}};
    backend.run(op::LinearBackwardWeights{.gradients = gradients});
  };
  auto expected_first = first, expected_bias = bias, expected_second = second;
  give(*checked.cpu, expected_first, expected_bias, expected_second);
  EXPECT_EQ(testing::message_of([&] { give(checked.backend, first, bias, second); }), "");
  EXPECT_EQ(checked.backend.ops_checked(), 1);
  EXPECT_EQ(first.data, expected_first.data);
  EXPECT_EQ(bias.data, expected_bias.data);
  EXPECT_EQ(second.data, expected_second.data);
  checked.device->wrong_gradient = true;
  const std::string message = testing::message_of([&] { give(checked.backend, first, bias, second); });
  EXPECT_NE(message.find("linear_backward_weights"), std::string::npos) << message;
  EXPECT_NE(message.find("row 0, column 3"), std::string::npos) << message;
}

TEST(CheckedBackend, LooksOnlyWhileItIsAsked) {
  Checked checked;
  checked.device->wrong_product = true;
  EXPECT_EQ(checked.product(), "");
  EXPECT_EQ(checked.backend.ops_checked(), 0);
}

// What the device computed stays, and memory that two views share is shared on the CPU as well.
TEST(CheckedBackend, GradientsMayBeWrittenOverTheirInputs) {
  Checked checked;
  checked.backend.set_checking(true);
  auto dnormed = Matrix<float>::random(9, 8, 3), sum = Matrix<float>::random(9, 8, 4);
  auto gamma = Matrix<float>::random(1, 8, 5), beta = Matrix<float>::filled(1, 8, 0);
  Matrix<float> normed(9, 8), statistics(9, 2), dgamma(1, 8), dbeta(1, 8);
  checked.backend.run(op::ResidualNorm{.normed = normed.view(),
                                       .statistics = statistics.view(),
                                       .residual = sum.view(),
                                       .gamma = gamma.view(),
                                       .beta = beta.view()});
  auto expected = dnormed;
  const auto cpu = make_cpu_backend(1);
  Matrix<float> other_gamma(1, 8), other_beta(1, 8);
  cpu->run(op::ResidualNormBackward{.dresidual = expected.view(),
                                    .dgamma = other_gamma.view(),
                                    .dbeta = other_beta.view(),
                                    .dnormed = expected.view(),
                                    .sum = sum.view(),
                                    .statistics = statistics.view(),
                                    .gamma = gamma.view()});
  checked.backend.run(op::ResidualNormBackward{.dresidual = dnormed.view(),
                                               .dgamma = dgamma.view(),
                                               .dbeta = dbeta.view(),
                                               .dnormed = dnormed.view(),
                                               .sum = sum.view(),
                                               .statistics = statistics.view(),
                                               .gamma = gamma.view()});
  EXPECT_EQ(dnormed.data, expected.data);
  EXPECT_EQ(dgamma.data, other_gamma.data);
}

}  // namespace
}  // namespace tandem::backend
