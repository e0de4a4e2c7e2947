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
  std::vector<View> inputs(3);
  const auto forward = [&] {
    return stack.forward(check.context(), x, [&](int i, const View& input) {
      inputs[static_cast<size_t>(i)] = input;
      return nn::PendingProduct{sublayers[static_cast<size_t>(i)], input};
    });
  };
  check.run([&] { return LayerCheck::weighted_sum(forward().output(), weights); },
            [&] {
              const nn::Context context = check.context();
              const nn::ResidualStack::Saved saved = forward();
              const View doutput = context.take(4, kWidth);
              context.backend.copy(doutput, weights);
              const View result = stack.backward(
                  context, saved, doutput, [&](int i, const View& dinput, const View& dbranch, bool accumulate) {
                    sublayers[static_cast<size_t>(i)].backward_weight(context, dbranch, inputs[static_cast<size_t>(i)],
                                                                      Side::source);
                    sublayers[static_cast<size_t>(i)].backward_input(context, dinput, dbranch, accumulate);
                  });
              context.backend.copy(dx, result);
            },
            {{"x", x, dx}});
}

INSTANTIATE_TEST_SUITE_P(PreAndPost, Stack, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "PreNorm" : "PostNorm"; });

}  // namespace
}  // namespace tandem::testing
