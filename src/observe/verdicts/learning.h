// How well the model learns: its losses and scores, its non-finite numbers, its learning rate.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "observe/verdicts/duration.h"
#include "observe/verdicts/statistics.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// A validated quantity as a curve.
//
// x is the logarithm of the step: losses fall about linearly in it, so a slope holds longer.
struct ValidationSeries {
  std::vector<double> x, y;
  std::vector<int64_t> steps;
  size_t size() const { return y.size(); }
};

// The validations that have believable values of all `wanted` quantities; y is the first quantity.
ValidationSeries validation_series(const RankMetrics& metrics, const std::vector<double ValidPoint::*>& wanted);

// The series from a step on.
ValidationSeries since_step(const ValidationSeries& series, int64_t step);

enum class Direction : uint8_t { flat, falling, rising };

struct Trend {
  LineFit fit;  // fits the newest stretch that is straight within its noise and has no sudden change of level
  Direction direction = Direction::flat;
  double bootstrap_low = 0, bootstrap_high = 0;  // 95 % interval of the slope
  int64_t first_step = 0, last_step = 0;         // ends of the stretch
  bool shifted = false;                          // the stretch begins with a sudden change of level
  // A sudden change of level that is too new for a stretch of its own: `fit` leaves it out, `direction` is its
  // direction. 0 = none.
  double shift = 0;
  int64_t shift_step = 0;
  // Change over `steps` more steps, at a given slope.
  double change(double slope, double steps) const;
};

constexpr size_t kFewestValidations = 5;  // needed for a line, its noise and its straightness

// Needs kFewestValidations.
Trend trend_of(const ValidationSeries& series);

size_t best_of(const ValidationSeries& losses);  // index of the lowest; needs at least one

// How a loss changed since a validation, such as the best one.
struct Rise {
  double amount = kUnknown;     // mean now - mean around then; NaN: no points for one of them
  double threshold = kUnknown;  // noise alone exceeds it in 1 % of cases
  bool beyond = false;          // the loss rose beyond its noise: by that amount, or along a line since then
  bool below = false;           // the same for a fall
};

// Needs kFewestValidations.
Rise rise_since(const ValidationSeries& losses, size_t best);

// Skipped steps, rollbacks and losses that are not finite.
struct Finiteness {
  bool recorded = false;  // there is a training step or an event
  int64_t last_step = 0;
  double steps = 0, skipped = 0, rollbacks = 0;
  double unfinite = 0;  // train records with a loss that is not finite
  // The first step of a divergence that lasts up to the newest train record or validation: no loss is finite, or every
  // step is skipped.
  std::optional<int64_t> diverged_since{};
  double skipped_share() const { return steps > 0 ? skipped / steps : 0; }
};
Finiteness finiteness_of(const RankMetrics& metrics);

// What more training would bring if the trend continues.
struct Outlook {
  double steps = 0;  // steps of an hour, at most as many as the trend was seen over
  double seconds = 0;
  bool known() const { return steps >= 1; }
  struct Rates {  // planned learning rates
    double seen = 0, ahead = 0;
    bool falls() const { return ahead < seen / 2; }
  };
  std::optional<Rates> rates{};
};

// Validation NLL and BLEU, and the NLL of a fixed training sample to compare with, all in evaluation mode.
struct Learning {
  size_t validations = 0;
  std::optional<int64_t> diverged_since{};
  ValidationSeries nll{}, bleu{};
  // None: fewer than kFewestValidations, or a score that is always the same.
  std::optional<Trend> nll_trend{}, bleu_trend{};
  bool past_best = false;      // NLL rose beyond its noise since its best
  bool ever_fell = true;       // validation or training NLL fell beyond its noise since the start
  Outlook outlook{};           // what the trends would bring
  double training = kUnknown;  // newest NLL of training, in training mode

  ValidationSeries valid{}, sample{};  // NLL of validation and training sample, at validations with both
  size_t best = 0;                     // index of the lowest of `valid`
  // The rest, and `best`, need kFewestValidations.
  Trend valid_trend{}, sample_trend{};
  Rise valid_rise{}, sample_rise{};  // since the best
  bool bleu_risen = false;           // since the best

  size_t measured() const { return std::max(nll.size(), bleu.size()); }
  // Without a trend: enough validations for one, whose score is always the same.
  bool never_changes() const { return measured() >= kFewestValidations; }
  bool above_best() const { return best + 1 < valid.size(); }
  bool training_above_validation() const { return training > valid.y.back(); }
  double gap_at(size_t i) const { return valid.y[i] - sample.y[i]; }
  const Trend& first_trend() const { return nll_trend ? *nll_trend : *bleu_trend; }
  bool shifted() const { return (nll_trend && nll_trend->shift != 0) || (bleu_trend && bleu_trend->shift != 0); }
};
Learning learning_of(const RankMetrics& metrics, const RunPlan& plan, const Pace& pace);

// The learning rate of the newest record, the highest one, and the planned one at the newest record.
struct RateCourse {
  std::string schedule;  // the plan's schedule
  bool recorded = false;
  int64_t step = 0, highest_step = 0;
  double rate = kUnknown, highest = kUnknown, planned = kUnknown;
  double over_planned() const { return rate / planned; }
};
RateCourse rate_course_of(const RankMetrics& metrics, const RunPlan& plan);

// Is the model fully trained? Judged by NLL's and BLEU's slope against their noise, never by a step count.
// Labels: still_improving, unclear (perhaps improving), flat, worsening, mixed (NLL and BLEU disagree), not_learning,
// diverged, too_early (fewer than 5 validations), no_validation.
Verdict trained_enough(const Learning& learning);

// Does the model overfit: does validation worsen beyond its noise while the training sample does not? A gap alone is
// not overfitting (a model knows what it has seen), nor is a flat curve, nor a training loss above the evaluation loss
// (dropout is on in one and off in the other).
// Labels: no, overfitting, both_worsen (that is divergence), diverged, no_sample (the training sample is not measured),
// too_early (fewer than 5 validations).
Verdict overfitting(const Learning& learning);

// Labels: none, skipped, rolled_back, diverged (the newest losses are not finite), empty.
Verdict nonfinite(const Finiteness& finiteness);

// Labels: as_planned, lowered (the applied rate is below the formula's: rollbacks), differs, no_plan, empty.
Verdict learning_rate_explained(const RateCourse& course);

}  // namespace tandem::observe
