// Learning-rate policies, with the formulas (and quirks) of OpenSeq2Seq. A step counts from 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::optim {

enum class SchedulePolicy : uint8_t {
  fixed_lr,
  piecewise_constant,
  exp_decay,
  poly_decay,
  cosine_decay,
  transformer_policy,
  inv_poly_decay,
};

const char* name_of(SchedulePolicy policy);

// Each member names the policies that read it; the others ignore it.
struct ScheduleConfig {
  SchedulePolicy policy = SchedulePolicy::transformer_policy;
  double learning_rate = 2.0;  // all; for transformer_policy a multiplier, not a rate

  int64_t warmup_steps = 8000;  // transformer; poly, cosine: linear from 0 (inv_poly ignores it)
  int64_t d_model = 0;          // transformer; 0 = the model's width
  double coefficient = 1;       // transformer
  double max_lr = 0;            // transformer: upper limit; 0 = none

  int64_t decay_steps = 0;           // exp, poly, cosine, inv_poly; 0 = up to the last step
  int64_t begin_decay_at = 0;        // exp; poly, cosine (at least warmup_steps); inv_poly ignores it
  double min_lr = 0;                 // exp, poly, inv_poly: a rate; cosine: a fraction of learning_rate
  double power = 1;                  // poly, inv_poly
  double decay_rate = 0.5;           // exp: factor for every decay_steps
  bool use_staircase_decay = false;  // exp: only whole factors, rounded down

  std::vector<int64_t> boundaries{};  // piecewise: the last step (or epoch) of each piece, rising
  std::vector<double> decay_rates{};  // piecewise: learning_rate's factor after each boundary
  int64_t steps_per_epoch = 0;        // piecewise: > 0: boundaries are epochs
};

// Fills in what is 0 by default: d_model from the model, decay_steps as last_step - begin_decay_at (or warmup_steps).
// `last_step` is 0 if unknown.
ScheduleConfig with_defaults(ScheduleConfig config, int64_t d_model, int64_t last_step);

// All impossible values, one line each; empty if the config is valid. Call with_defaults() first.
std::string problems(const ScheduleConfig& config);

double learning_rate(const ScheduleConfig& config, int64_t step);

// One line: policy, formula with its numbers, highest rate and the step that reaches it.
std::string explain(const ScheduleConfig& config);

}  // namespace tandem::optim
