#include "nn/residual_stack.h"

#include "layer_check.h"
#include "nn/linear.h"

namespace tandem::testing {
namespace {

constexpr int64_t kWidth = 8;

// A stack whose sublayers are matrix products, against central differences and against the formula.
class Stack : public ::testing::TestWithParam<bool> {};

TEST_P(Stack, Gradients) {
  LayerCheck check;
  nn::ResidualStack stack(kWidth, GetParam(), 0.3F, Side::source);
  std::vector<nn::Linear> sublayers;
  for (int i = 0; i < 3; ++i) {
    stack.add_sublayer(check.layout, fmt::format("norm{}", i), static_cast<uint32_t>(i));
    sublayers.push_back(nn::Linear::make(check.layout, fmt::format("f{}", i), kWidth, kWidth, true));
    if (i != 1) {
      stack.sum_bias_of(sublayers.back());
    }
  }
  stack.finish(check.layout, "last");
  const View x = check.values(4, kWidth), dx = check.values(4, kWidth), weights = check.values(4, kWidth);
  const auto forward = [&] {
    return stack.forward(check.context(), x, [&](int i, const View& input) {
      const nn::Linear& linear = sublayers[static_cast<size_t>(i)];
      return nn::ResidualStack::Branch{
          {linear, input},
          [&linear, input](const nn::Context& context, const View& dinput, const View& dbranch, bool accumulate) {
            linear.backward_weight(context, dbranch, input, Side::source);
            linear.backward_input(context, dinput, dbranch, accumulate);
          }};
    });
  };
  check.run([&] { return LayerCheck::weighted_sum(forward().output(), weights); },
            [&] {
              const nn::Context context = check.context();
              const nn::ResidualStack::Saved saved = forward();
              const View doutput = context.take(4, kWidth);
              context.backend.copy(doutput, weights);
              context.backend.copy(dx, stack.backward(context, saved, doutput));
            },
            {{"x", x, dx}});
}

INSTANTIATE_TEST_SUITE_P(PreAndPost, Stack, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "PreNorm" : "PostNorm"; });

}  // namespace
}  // namespace tandem::testing
