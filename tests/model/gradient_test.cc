// The whole model's gradients in f64 against central differences, with every dropout on: masks are a function of
// their place, so the loss is a smooth function of the weights.
#include "test_model.h"

namespace tandem::testing {
namespace {

struct Case {
  const char* name;
  model::NormPlace norm;
  backend::Activation activation;
  model::Tie tie;
  bool attention_bias;
};

class ModelGradients : public ::testing::TestWithParam<Case> {};

TEST_P(ModelGradients, EqualCentralDifferences) {
  model::ModelConfig config = tiny_config();
  config.norm = GetParam().norm;
  config.activation = GetParam().activation;
  config.tie = GetParam().tie;
  config.attention_bias = GetParam().attention_bias;
  if (config.tie != model::Tie::all) {
    config.target_vocabulary = 10;
  }
  TestModel tested(config, DType::f64);
  TestBatch batch(test_source(), test_target());
  tested.train(batch);
  const std::vector<double> gradients = to_doubles(tested.gradients);

  constexpr double kStep = 1e-5;
  constexpr int64_t kSamples = 4;
  const double scale = static_cast<double>(tested.state.loss_scale);
  double* weights = tested.weights.masters.host<double>();
  for (const Parameter& parameter : tested.model.parameters().all()) {
    std::vector<double> actual, expected;
    for (int64_t i = 0; i < kSamples; ++i) {
      const int64_t at = parameter.offset + (i * 7919 + 3) % parameter.size();
      const double kept = weights[at];
      weights[at] = kept + kStep;
      const double above = tested.train(batch).smoothed;
      weights[at] = kept - kStep;
      const double below = tested.train(batch).smoothed;
      weights[at] = kept;
      actual.push_back(gradients[static_cast<size_t>(at)]);
      expected.push_back((above - below) / (2 * kStep) * scale);
    }
    EXPECT_TRUE(close(std::span(actual), std::span(expected), 1e-8, 1e-5)) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configs, ModelGradients,
    ::testing::Values(Case{"PreReluAll", model::NormPlace::pre, backend::Activation::relu, model::Tie::all, false},
                      Case{"PostReluAll", model::NormPlace::post, backend::Activation::relu, model::Tie::all, false},
                      Case{"PreGeluOutput", model::NormPlace::pre, backend::Activation::gelu, model::Tie::output, true},
                      Case{"PostSwishNone", model::NormPlace::post, backend::Activation::swish, model::Tie::none,
                           true}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tandem::testing
