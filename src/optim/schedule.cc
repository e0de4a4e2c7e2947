#include "optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "core/error.h"

namespace tandem::optim {

namespace {

constexpr const char* kNames[] = {"fixed_lr",     "piecewise_constant", "exp_decay",     "poly_decay",
                                  "cosine_decay", "transformer_policy", "inv_poly_decay"};

bool decays(SchedulePolicy policy) {
  return policy == SchedulePolicy::exp_decay || policy == SchedulePolicy::poly_decay ||
         policy == SchedulePolicy::cosine_decay || policy == SchedulePolicy::inv_poly_decay;
}

bool warms_up(SchedulePolicy policy) {
  return policy == SchedulePolicy::poly_decay || policy == SchedulePolicy::cosine_decay;
}

int64_t decay_begin(const ScheduleConfig& c) {
  return warms_up(c.policy) ? std::max(c.begin_decay_at, c.warmup_steps) : c.begin_decay_at;
}

double piecewise_constant(const ScheduleConfig& c, int64_t step) {
  const int64_t unit = c.steps_per_epoch > 0 ? c.steps_per_epoch : 1;
  double factor = 1;
  for (size_t i = 0; i < c.boundaries.size() && step > c.boundaries[i] * unit; ++i) {
    factor = c.decay_rates[i];
  }
  return c.learning_rate * factor;
}

double exp_decay(const ScheduleConfig& c, int64_t step) {
  if (step < c.begin_decay_at) {
    return std::max(c.min_lr, c.learning_rate);
  }
  const double periods = static_cast<double>(step - c.begin_decay_at) / static_cast<double>(c.decay_steps);
  return std::max(c.min_lr,
                  c.learning_rate * std::pow(c.decay_rate, c.use_staircase_decay ? std::floor(periods) : periods));
}

// Poly and cosine: linear warm-up from 0, constant up to the decay, then shape(share of the decay done).
template <class Shape>
double warm_then(const ScheduleConfig& c, int64_t step, const Shape& shape) {
  if (step < c.warmup_steps) {
    return c.learning_rate * static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  }
  const int64_t begin = decay_begin(c);
  if (step < begin) {
    return c.learning_rate;
  }
  return shape(static_cast<double>(std::min(step - begin, c.decay_steps)) / static_cast<double>(c.decay_steps));
}

double transformer_policy(const ScheduleConfig& c, int64_t step) {
  const double t = static_cast<double>(step + 1);
  const double shape = std::min(t * std::pow(static_cast<double>(c.warmup_steps), -1.5), 1 / std::sqrt(t));
  const double rate = c.learning_rate * c.coefficient / std::sqrt(static_cast<double>(c.d_model)) * shape;
  return c.max_lr > 0 ? std::min(c.max_lr, rate) : rate;
}

// The rate is learning_rate / (1 + scale * t)^power; this is the scale.
double inv_poly_scale(const ScheduleConfig& c) {
  const double least = std::min(std::max(c.min_lr, 1e-8), c.learning_rate);
  return (std::pow(c.learning_rate / least, 1 / c.power) - 1) / static_cast<double>(c.decay_steps);
}

// The first step with the highest rate.
int64_t peak_step(const ScheduleConfig& c) {
  switch (c.policy) {
    case SchedulePolicy::transformer_policy: {
      int64_t step = std::max<int64_t>(c.warmup_steps, 1) - 1;
      if (c.max_lr > 0 && learning_rate(c, step) >= c.max_lr) {
        ScheduleConfig unlimited = c;
        unlimited.max_lr = 0;
        step = std::max<int64_t>(static_cast<int64_t>(std::ceil(c.max_lr / learning_rate(unlimited, 0))) - 1, 0);
      }
      return step;
    }
    case SchedulePolicy::poly_decay:
    case SchedulePolicy::cosine_decay:
      return c.warmup_steps;
    case SchedulePolicy::piecewise_constant: {
      const auto highest = std::max_element(c.decay_rates.begin(), c.decay_rates.end());
      if (highest == c.decay_rates.end() || *highest <= 1) {
        return 0;
      }
      const int64_t unit = c.steps_per_epoch > 0 ? c.steps_per_epoch : 1;
      return c.boundaries[static_cast<size_t>(highest - c.decay_rates.begin())] * unit + 1;
    }
    default:
      return 0;
  }
}

std::string warmup_text(const ScheduleConfig& c) {
  return c.warmup_steps > 0 ? fmt::format("{:.4g} * t / {} in the first {} steps, then ", c.learning_rate,
                                          c.warmup_steps, c.warmup_steps)
                            : "";
}

std::string formula(const ScheduleConfig& c) {
  const double lr = c.learning_rate;
  switch (c.policy) {
    case SchedulePolicy::fixed_lr:
      return fmt::format("{:.4g} at every step", lr);
    case SchedulePolicy::piecewise_constant: {
      std::string text = fmt::format("{:.4g}", lr);
      for (size_t i = 0; i < c.boundaries.size(); ++i) {
        text += fmt::format(", then {:.4g} after {} {}", lr * c.decay_rates[i],
                            c.steps_per_epoch > 0 ? "epoch" : "step", c.boundaries[i]);
      }
      return text;
    }
    case SchedulePolicy::exp_decay:
      return fmt::format("max({:.4g}, {:.4g} * {:.4g}^{}((t - {}) / {})) from step {} on", c.min_lr, lr, c.decay_rate,
                         c.use_staircase_decay ? "floor" : "", c.begin_decay_at, c.decay_steps, c.begin_decay_at);
    case SchedulePolicy::poly_decay:
      return fmt::format("{}({:.4g} - {:.4g}) * (1 - min(t - {}, {}) / {})^{:.4g} + {:.4g}", warmup_text(c), lr,
                         c.min_lr, decay_begin(c), c.decay_steps, c.decay_steps, c.power, c.min_lr);
    case SchedulePolicy::cosine_decay:
      return fmt::format("{}{:.4g} * ({:.4g} * (1 + cos(pi * min(t - {}, {}) / {})) / 2 + {:.4g})", warmup_text(c), lr,
                         1 - c.min_lr, decay_begin(c), c.decay_steps, c.decay_steps, c.min_lr);
    case SchedulePolicy::transformer_policy:
      return fmt::format("{:.4g} * {}^-0.5 * min((t + 1) * {}^-1.5, (t + 1)^-0.5){}", lr * c.coefficient, c.d_model,
                         c.warmup_steps, c.max_lr > 0 ? fmt::format(", at most {:.4g}", c.max_lr) : "");
    case SchedulePolicy::inv_poly_decay:
      return fmt::format("{:.4g} / (1 + {:.4g} * t)^{:.4g}", lr, inv_poly_scale(c), c.power);
  }
  fail("no such learning-rate policy");
}

}  // namespace

const char* name_of(SchedulePolicy policy) { return kNames[static_cast<size_t>(policy)]; }

ScheduleConfig with_defaults(ScheduleConfig config, int64_t d_model, int64_t last_step) {
  config.d_model = config.d_model == 0 ? d_model : config.d_model;
  if (config.decay_steps == 0 && last_step > 0) {
    config.decay_steps = last_step - decay_begin(config);
  }
  return config;
}

std::string problems(const ScheduleConfig& c) {
  std::string text;
  const auto check = [&](bool good, const std::string& sentence) {
    if (!good) {
      text += (text.empty() ? "" : "\n") + sentence;
    }
  };
  const auto finite = [](double value, double least) { return value >= least && std::isfinite(value); };
  const char* policy = name_of(c.policy);
  check(finite(c.learning_rate, 0) && c.learning_rate > 0,
        fmt::format("schedule.learning_rate must be above 0, not {}", c.learning_rate));
  check(finite(c.min_lr, 0), fmt::format("schedule.min_lr must be 0 or more, not {}", c.min_lr));
  check(finite(c.max_lr, 0), fmt::format("schedule.max_lr must be 0 (no limit) or more, not {}", c.max_lr));
  check(c.begin_decay_at >= 0, fmt::format("schedule.begin_decay_at must be 0 or more, not {}", c.begin_decay_at));
  check(c.warmup_steps >= 0, fmt::format("schedule.warmup_steps must be 0 or more, not {}", c.warmup_steps));
  if (decays(c.policy)) {
    check(c.decay_steps > 0,
          fmt::format("schedule.decay_steps is {} but {} needs at least 1: set it, or set stop.max_steps above {}",
                      c.decay_steps, policy, decay_begin(c)));
  }
  if (c.policy == SchedulePolicy::transformer_policy) {
    check(c.warmup_steps != 0, "schedule.warmup_steps must be at least 1 for transformer_policy");
    check(c.d_model > 0, fmt::format("schedule.d_model must be above 0, not {}", c.d_model));
    check(finite(c.coefficient, 0) && c.coefficient > 0,
          fmt::format("schedule.coefficient must be above 0, not {}", c.coefficient));
  }
  if (c.policy == SchedulePolicy::exp_decay) {
    check(c.decay_rate > 0 && c.decay_rate <= 1,
          fmt::format("schedule.decay_rate must be above 0 and at most 1, not {}", c.decay_rate));
  }
  if (c.policy == SchedulePolicy::cosine_decay) {
    check(c.min_lr <= 1, fmt::format("schedule.min_lr is a fraction of learning_rate for cosine_decay and must be at "
                                     "most 1, not {}",
                                     c.min_lr));
  }
  if (c.policy == SchedulePolicy::poly_decay || c.policy == SchedulePolicy::inv_poly_decay) {
    check(finite(c.power, 0) && c.power > 0, fmt::format("schedule.power must be above 0, not {}", c.power));
    check(!(c.min_lr > c.learning_rate),
          fmt::format("schedule.min_lr {} is above schedule.learning_rate {}", c.min_lr, c.learning_rate));
  }
  if (c.policy == SchedulePolicy::piecewise_constant) {
    check(c.boundaries.size() == c.decay_rates.size(),
          fmt::format("schedule.boundaries has {} numbers and schedule.decay_rates {}: give one rate for each boundary",
                      c.boundaries.size(), c.decay_rates.size()));
    const bool rising =
        std::adjacent_find(c.boundaries.begin(), c.boundaries.end(), std::greater_equal<>()) == c.boundaries.end();
    check(rising && (c.boundaries.empty() || c.boundaries.front() >= 0),
          "schedule.boundaries must rise and begin at 0 or more");
    check(std::all_of(c.decay_rates.begin(), c.decay_rates.end(), [&](double rate) { return finite(rate, 0); }),
          "schedule.decay_rates must be 0 or more");
    check(c.steps_per_epoch >= 0, fmt::format("schedule.steps_per_epoch must be 0 or more, not {}", c.steps_per_epoch));
  }
  return text;
}

double learning_rate(const ScheduleConfig& c, int64_t step) {
  switch (c.policy) {
    case SchedulePolicy::fixed_lr:
      return c.learning_rate;
    case SchedulePolicy::piecewise_constant:
      return piecewise_constant(c, step);
    case SchedulePolicy::exp_decay:
      return exp_decay(c, step);
    case SchedulePolicy::poly_decay:
      return warm_then(
          c, step, [&](double done) { return (c.learning_rate - c.min_lr) * std::pow(1 - done, c.power) + c.min_lr; });
    case SchedulePolicy::cosine_decay:
      return warm_then(c, step, [&](double done) {
        const double wave = 0.5 * (1 + std::cos(std::numbers::pi * done));
        return c.learning_rate * ((1 - c.min_lr) * wave + c.min_lr);
      });
    case SchedulePolicy::transformer_policy:
      return transformer_policy(c, step);
    case SchedulePolicy::inv_poly_decay:
      return c.learning_rate / std::pow(1 + inv_poly_scale(c) * static_cast<double>(step), c.power);
  }
  fail("no such learning-rate policy");
}

std::string explain(const ScheduleConfig& config) {
  const int64_t peak = peak_step(config);
  const char* multiplier =
      config.policy == SchedulePolicy::transformer_policy ? " (learning_rate is a multiplier here, not a rate)" : "";
  return fmt::format("{}: rate at step t (from 0) = {}{}; highest {:.4g} at step {}.", name_of(config.policy),
                     formula(config), multiplier, learning_rate(config, peak), peak);
}

}  // namespace tandem::optim
