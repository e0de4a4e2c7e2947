// A validated quantity as a curve, which way it goes, and whether it has risen since its best.
#pragma once

#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/statistics.h"

namespace tandem::observe {

// x is the logarithm of the step: losses fall along something like a straight line of it, so a slope holds longer.
struct ValidationSeries {
  std::vector<double> x, y;
  std::vector<int64_t> steps;
  size_t size() const { return y.size(); }
};

// Validations at which all of `wanted` is believable; y is the first of them.
ValidationSeries validation_series(const RankMetrics& metrics, const std::vector<double ValidPoint::*>& wanted);

// From a step on.
ValidationSeries since_step(const ValidationSeries& series, int64_t step);

enum class Direction : uint8_t { flat, falling, rising };

struct Trend {
  LineFit fit;  // of the newest stretch that is straight within its noise and has no sudden change of level
  Direction direction = Direction::flat;
  double bootstrap_low = 0, bootstrap_high = 0;  // slope, 95 %
  int64_t first_step = 0, last_step = 0;         // of the stretch
  bool shifted = false;                          // it begins with a sudden change of level
  // A sudden change of level that is too new for a stretch of its own: `fit` is without it, `direction` is its. 0 =
  // none.
  double shift = 0;
  int64_t shift_step = 0;
  // Change that `steps` more bring, at a given slope.
  double change(double slope, double steps) const;
};

constexpr size_t kFewestValidations = 5;  // a line, its noise and its straightness want no fewer

// Wants kFewestValidations.
Trend trend_of(const ValidationSeries& series);

size_t best_of(const ValidationSeries& losses);  // index of the lowest; wants at least one

// How a loss went since a validation, the best one say.
struct Rise {
  double amount = kUnknown;     // mean of now - mean around then; NaN: there are no points for one of them
  double threshold = kUnknown;  // what noise alone exceeds in 1 % of cases
  bool beyond = false;          // the loss rose beyond its noise: by that amount, or along a line since then
  bool below = false;           // the same, fallen
};

// Wants kFewestValidations.
Rise rise_since(const ValidationSeries& losses, size_t best);

}  // namespace tandem::observe
