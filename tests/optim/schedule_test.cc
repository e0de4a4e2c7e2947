#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem::optim {
namespace {

void expect_rate(const ScheduleConfig& config, int64_t step, double expected) {
  ASSERT_EQ(problems(config), "");
  const double rate = learning_rate(config, step);
  EXPECT_TRUE(std::fabs(rate - expected) <= 1e-12 + 1e-9 * expected) << "step " << step << ": " << rate;
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Schedule, fixed) {
  expect_rate({.policy = SchedulePolicy::fixed_lr, .learning_rate = 0.25}, 0, 0.25);
  expect_rate({.policy = SchedulePolicy::fixed_lr, .learning_rate = 0.25}, 1'000'000, 0.25);
}

// The original's defaults: 2.0, width 512, 8,000 warm-up steps.
TEST(Schedule, transformer) {
  const ScheduleConfig config = with_defaults({}, 512, 300'000);
  expect_rate(config, 0, 1.2352647110032733e-07);
  expect_rate(config, 3'999, 0.0004941058844013093);
  expect_rate(config, 7'999, 0.0009882117688026187);
  EXPECT_NEAR(learning_rate(config, 20'000), 6.25e-4, 5e-7);
  EXPECT_NEAR(learning_rate(config, 50'000), 3.95e-4, 5e-7);
  EXPECT_NEAR(learning_rate(config, 100'000), 2.80e-4, 5e-7);
  EXPECT_NEAR(learning_rate(config, 300'000), 1.61e-4, 5e-7);
  for (int64_t step : {7'000, 7'998, 8'000, 9'000}) {
    EXPECT_LT(learning_rate(config, step), learning_rate(config, 7'999));
  }
}

TEST(Schedule, transformer_with_a_limit_and_a_coefficient) {
  const ScheduleConfig config{
      .learning_rate = 1, .warmup_steps = 100, .d_model = 16, .coefficient = 0.5, .max_lr = 0.01};
  expect_rate(config, 3, 1 * 0.5 * 0.25 * 4 / 1000);
  expect_rate(config, 99, 0.01);  // 0.0125 without the limit
  expect_rate(config, 399, 0.5 * 0.25 / 20);
  EXPECT_TRUE(mentions(explain(config), "highest 0.01 at step 79")) << explain(config);
}

TEST(Schedule, piecewise_constant_changes_after_its_boundary) {
  ScheduleConfig config{.policy = SchedulePolicy::piecewise_constant,
                        .learning_rate = 0.4,
                        .boundaries = {10, 20},
                        .decay_rates = {0.5, 0.1}};
  expect_rate(config, 0, 0.4);
  expect_rate(config, 10, 0.4);
  expect_rate(config, 11, 0.2);
  expect_rate(config, 20, 0.2);
  expect_rate(config, 21, 0.04);
  config.steps_per_epoch = 100;
  expect_rate(config, 1'000, 0.4);
  expect_rate(config, 1'001, 0.2);
  expect_rate(config, 2'001, 0.04);
}

TEST(Schedule, exponential) {
  ScheduleConfig config{.policy = SchedulePolicy::exp_decay,
                        .learning_rate = 0.8,
                        .decay_steps = 10,
                        .begin_decay_at = 100,
                        .min_lr = 0.05,
                        .decay_rate = 0.25};
  expect_rate(config, 99, 0.8);
  expect_rate(config, 100, 0.8);
  expect_rate(config, 105, 0.4);
  expect_rate(config, 110, 0.2);
  expect_rate(config, 115, 0.1);
  expect_rate(config, 130, 0.05);
  config.use_staircase_decay = true;
  expect_rate(config, 109, 0.8);
  expect_rate(config, 110, 0.2);
  expect_rate(config, 119, 0.2);
}

TEST(Schedule, polynomial) {
  ScheduleConfig config{.policy = SchedulePolicy::poly_decay,
                        .learning_rate = 0.5,
                        .warmup_steps = 10,
                        .decay_steps = 100,
                        .begin_decay_at = 5,  // at least the warm-up
                        .min_lr = 0.1,
                        .power = 2};
  expect_rate(config, 0, 0);
  expect_rate(config, 5, 0.25);
  expect_rate(config, 10, 0.5);
  expect_rate(config, 60, 0.4 * 0.25 + 0.1);
  expect_rate(config, 110, 0.1);
  expect_rate(config, 5'000, 0.1);
  config.begin_decay_at = 30;
  expect_rate(config, 29, 0.5);
  expect_rate(config, 80, 0.4 * 0.25 + 0.1);
}

TEST(Schedule, cosine_takes_min_lr_as_a_fraction) {
  const ScheduleConfig config{.policy = SchedulePolicy::cosine_decay,
                              .learning_rate = 0.02,
                              .warmup_steps = 4,
                              .decay_steps = 100,
                              .min_lr = 0.1};
  expect_rate(config, 1, 0.005);
  expect_rate(config, 4, 0.02);
  expect_rate(config, 29, 0.02 * (0.9 * 0.5 * (1 + std::sqrt(0.5)) + 0.1));
  expect_rate(config, 54, 0.02 * (0.9 * 0.5 + 0.1));
  expect_rate(config, 104, 0.02 * 0.1);
  expect_rate(config, 999, 0.02 * 0.1);
}

TEST(Schedule, inverse_polynomial_ignores_warmup_and_begin) {
  const ScheduleConfig config{.policy = SchedulePolicy::inv_poly_decay,
                              .learning_rate = 0.9,
                              .warmup_steps = 50,
                              .decay_steps = 10,
                              .begin_decay_at = 20,
                              .min_lr = 0.1,
                              .power = 2};
  expect_rate(config, 0, 0.9);
  expect_rate(config, 5, 0.9 / 4);  // scale = (sqrt(9) - 1) / 10
  expect_rate(config, 10, 0.1);
  expect_rate(config, 20, 0.9 / 25);
  ScheduleConfig no_least = config;
  no_least.min_lr = 0;
  no_least.power = 1;
  expect_rate(no_least, 10, 1e-8);
}

TEST(Schedule, decay_steps_default_to_what_is_left_of_the_run) {
  ScheduleConfig config{.policy = SchedulePolicy::cosine_decay, .learning_rate = 1, .warmup_steps = 20};
  EXPECT_TRUE(mentions(problems(with_defaults(config, 512, 0)), "stop.max_steps"));
  config = with_defaults(config, 512, 120);
  EXPECT_EQ(config.decay_steps, 100);
  expect_rate(config, 70, 0.5);
  ScheduleConfig exponential{.policy = SchedulePolicy::exp_decay, .warmup_steps = 20, .begin_decay_at = 30};
  EXPECT_EQ(with_defaults(exponential, 512, 120).decay_steps, 90);
  exponential.decay_steps = 7;
  EXPECT_EQ(with_defaults(exponential, 512, 120).decay_steps, 7);
}

TEST(Schedule, lists_all_problems_at_once) {
  const ScheduleConfig config{.learning_rate = std::numeric_limits<double>::quiet_NaN(), .warmup_steps = 0};
  const std::string text = problems(config);
  EXPECT_TRUE(mentions(text, "learning_rate") && mentions(text, "warmup_steps") && mentions(text, "d_model")) << text;
  EXPECT_NE(problems({.policy = SchedulePolicy::piecewise_constant, .boundaries = {5, 5}, .decay_rates = {1, 1}}), "");
  EXPECT_NE(problems({.policy = SchedulePolicy::piecewise_constant, .boundaries = {5}}), "");
  EXPECT_NE(problems({.policy = SchedulePolicy::exp_decay, .decay_steps = 1, .decay_rate = 0}), "");
  EXPECT_NE(problems({.policy = SchedulePolicy::poly_decay, .decay_steps = 1, .power = -1}), "");
  EXPECT_NE(problems({.policy = SchedulePolicy::inv_poly_decay, .learning_rate = 1, .decay_steps = 1, .min_lr = 2}),
            "");
  EXPECT_NE(problems({.policy = SchedulePolicy::cosine_decay, .decay_steps = 1, .min_lr = 1.5}), "");
  EXPECT_NE(problems({.policy = SchedulePolicy::fixed_lr, .warmup_steps = -1}), "");
}

TEST(Schedule, explains_itself_with_numbers) {
  const std::string text = explain(with_defaults({}, 512, 0));
  for (const char* part :
       {"transformer_policy", "2 * 512^-0.5", "8000^-1.5", "multiplier", "highest 0.0009882", "at step 7999"}) {
    EXPECT_TRUE(mentions(text, part)) << part << " in " << text;
  }
  const ScheduleConfig cosine{.policy = SchedulePolicy::cosine_decay, .warmup_steps = 0, .decay_steps = 9};
  EXPECT_TRUE(mentions(explain(cosine), "highest 2 at step 0")) << explain(cosine);
}

}  // namespace
}  // namespace tandem::optim
