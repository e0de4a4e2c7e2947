#include "optim/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "compare.h"

namespace tandem::optim {
namespace {

constexpr int64_t kSize = 1003;

// PyTorch's formula in double.
struct Reference {
  std::vector<double> w, m, v, average;
  backend::AdamSettings settings;
  double max_norm = 0;
  double average_decay = 0;
  int64_t t = 0;

  double step(const std::vector<float>& gradients, double rate) {
    double norm = 0;
    for (const float g : gradients) {
      norm += static_cast<double>(g) * g;
    }
    norm = std::sqrt(norm);
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / norm) : 1;
    ++t;
    const double b1 = settings.beta1, b2 = settings.beta2;
    const double keep = std::min(average_decay, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
    for (size_t i = 0; i < w.size(); ++i) {
      double g = gradients[i] * clip;
      if (settings.decoupled) {
        w[i] -= rate * settings.weight_decay * w[i];
      } else {
        g += settings.weight_decay * w[i];
      }
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double corrected = std::sqrt(v[i] / (1 - std::pow(b2, t)));
      w[i] -= rate * (m[i] / (1 - std::pow(b1, t))) / (corrected + settings.epsilon);
      average[i] = keep * average[i] + (1 - keep) * w[i];
    }
    return norm;
  }
};

struct Fixture {
  Fixture(const backend::AdamSettings& settings, float max_norm, float decay)
      : adam(*backend, kSize, {settings, max_norm, decay}), w(kSize), average(kSize), g(kSize) {
    testing::fill_random(std::span(w), 1);
    average = w;
    reference = {{w.begin(), w.end()},
                 std::vector<double>(kSize),
                 std::vector<double>(kSize),
                 {w.begin(), w.end()},
                 settings,
                 max_norm,
                 decay,
                 0};
  }

  backend::UpdateState step(double rate) {
    state.learning_rate = static_cast<float>(rate);
    const View sum = host_view(&squares, 1, 1);
    backend->run(backend::op::SumOfSquares{.sum = sum, .x = view(g)});
    adam.prepare(&update, sum);
    adam.update({view(w), {}, view(average), view(g)}, 0, &state, &update);
    return update;
  }

  static View view(std::vector<float>& values) { return host_view(values.data(), 1, kSize); }

  std::unique_ptr<backend::Backend> backend = backend::make_cpu_backend(2);
  Adam adam;
  std::vector<float> w, average, g;
  double squares = 0;
  backend::StepState state;
  backend::UpdateState update;
  Reference reference;
};

void compare_updates(const backend::AdamSettings& settings, float max_norm) {
  Fixture f(settings, max_norm, 0.5F);
  for (uint32_t step = 1; step <= 12; ++step) {
    testing::fill_random(std::span(f.g), step + 100);
    const double rate = 1e-2 / step;
    const backend::UpdateState norm = f.step(rate);
    const double expected = f.reference.step(f.g, rate);
    ASSERT_NEAR(norm.norm, expected, 1e-6 * expected);
    ASSERT_EQ(norm.finite, 1U);
  }
  EXPECT_EQ(f.update.updates, 12U);
  EXPECT_TRUE(testing::close(std::span(f.w), std::span(f.reference.w), 1e-6, 1e-5));
  EXPECT_TRUE(testing::close(std::span(f.average), std::span(f.reference.average), 1e-6, 1e-5));
  const std::span<const float> m(f.adam.m().host<float>(), kSize), v(f.adam.v().host<float>(), kSize);
  EXPECT_TRUE(testing::close(m, std::span(f.reference.m), 1e-7, 1e-5));
  EXPECT_TRUE(testing::close(v, std::span(f.reference.v), 1e-9, 1e-5));
}

TEST(Adam, follows_the_formula) { compare_updates({.beta1 = 0.9F, .beta2 = 0.997F, .epsilon = 1e-9F}, 0); }

TEST(Adam, clips_by_the_global_norm) { compare_updates({}, 0.5F); }

TEST(Adam, decay_is_added_to_the_gradient) { compare_updates({.weight_decay = 0.1F}, 0); }

TEST(Adam, decay_can_be_decoupled) { compare_updates({.weight_decay = 0.1F, .decoupled = true}, 2); }

TEST(Adam, bias_corrections_follow_the_updates) {
  Fixture f({.beta1 = 0.5F, .beta2 = 0.75F}, 0, 0.5F);
  testing::fill_random(std::span(f.g), 5);
  f.step(1e-3);
  EXPECT_EQ(f.update.bias_correction1, 0.5F);
  EXPECT_EQ(f.update.bias_correction2, 0.25F);
  EXPECT_FLOAT_EQ(f.update.average_decay, 2.0F / 11.0F);
  f.update.updates = 2;
  f.step(1e-3);
  EXPECT_EQ(f.update.updates, 3U);
  EXPECT_EQ(f.update.bias_correction1, 0.875F);
  EXPECT_EQ(f.update.bias_correction2, 1 - 0.75F * 0.75F * 0.75F);
  f.update.updates = 1000;
  f.step(1e-3);
  EXPECT_EQ(f.update.average_decay, 0.5F);
}

TEST(Adam, a_gradient_that_is_not_finite_changes_nothing) {
  Fixture f({}, 1, 0.9F);
  testing::fill_random(std::span(f.g), 5);
  f.step(1e-3);
  const std::vector<float> w = f.w, average = f.average;
  const std::vector<float> m(f.adam.m().host<float>(), f.adam.m().host<float>() + kSize);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    f.g[500] = bad;
    EXPECT_EQ(f.step(1e-3).finite, 0U);
  }
  EXPECT_EQ(f.w, w);
  EXPECT_EQ(f.average, average);
  EXPECT_TRUE(std::equal(m.begin(), m.end(), f.adam.m().host<float>()));
  EXPECT_EQ(f.update.updates, 1U);
}

TEST(Adam, sizes_must_fit) {
  const auto backend = backend::make_cpu_backend(1);
  Adam adam(*backend, 8, {});
  std::vector<float> w(8), g(7);
  backend::StepState state;
  backend::UpdateState update;
  const View weights = host_view(w.data(), 1, 8), gradients = host_view(g.data(), 1, 7);
  EXPECT_THROW(adam.update({weights, {}, {}, gradients}, 0, &state, &update), Error);
  EXPECT_THROW(adam.update({weights, {}, {}, weights}, 1, &state, &update), Error);  // past the moments' end
}

TEST(Adam, its_slots_are_the_moments_and_its_name_decides_how_weights_decay) {
  const auto backend = backend::make_cpu_backend(1);
  const backend::UpdateState update{.norm = 1, .updates = 1, .bias_correction1 = 0.1F, .bias_correction2 = 0.001F};
  const backend::StepState state{.learning_rate = 0.5F};
  std::vector<float> weights{2}, gradients{0};
  for (const auto& [name, decoupled] : {std::pair(OptimizerName::adam, false), std::pair(OptimizerName::adamw, true)}) {
    const auto optimizer = make_optimizer(name, *backend, 1, {.adam = {.weight_decay = 0.25F}});
    const std::vector<Slot> slots = optimizer->slots();
    ASSERT_EQ(slots.size(), 2U);
    EXPECT_EQ(slots[0].name, "m");
    EXPECT_EQ(slots[1].name, "v");
    weights[0] = 2;
    optimizer->update({host_view(weights.data(), 1, 1), {}, {}, host_view(gradients.data(), 1, 1)}, 0, &state, &update);
    EXPECT_EQ(weights[0] == 1.75F, decoupled);                // 2 * (1 - 0.5 * 0.25)
    EXPECT_EQ(*slots[0].view.host<float>() == 0, decoupled);  // else the decay is a gradient
  }
}

}  // namespace
}  // namespace tandem::optim
