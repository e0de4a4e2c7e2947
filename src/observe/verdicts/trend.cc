#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "observe/verdicts/learning.h"

namespace tandem::observe {

namespace {

// Losses of a model are tens of nats at most, scores at most 100; larger values were not measured.
constexpr double kBelievable = 1e4;

constexpr size_t kRecent = 3;  // newest validations, whose mean is the present level
constexpr size_t kAround = 2;  // neighbours on each side of the best, whose mean is its level

}  // namespace

ValidationSeries validation_series(const RankMetrics& metrics, const std::vector<double ValidPoint::*>& wanted) {
  ValidationSeries series;
  for (const ValidPoint& point : metrics.valid) {
    const bool good = point.step > 0 && std::all_of(wanted.begin(), wanted.end(), [&](double ValidPoint::*member) {
                        return point.*member >= 0 && point.*member <= kBelievable;
                      });
    if (good) {
      series.x.push_back(std::log(static_cast<double>(point.step)));
      series.y.push_back(point.*wanted.front());
      series.steps.push_back(point.step);
    }
  }
  return series;
}

ValidationSeries since_step(const ValidationSeries& series, int64_t step) {
  const auto first = std::lower_bound(series.steps.begin(), series.steps.end(), step) - series.steps.begin();
  return {.x = {series.x.begin() + first, series.x.end()},
          .y = {series.y.begin() + first, series.y.end()},
          .steps = {series.steps.begin() + first, series.steps.end()}};
}

double Trend::change(double slope, double steps) const {
  return slope * std::log1p(steps / static_cast<double>(std::max<int64_t>(last_step, 1)));
}

Trend trend_of(const ValidationSeries& series) {
  Trend trend;
  const Stretch stretch = newest_stretch(series.x, series.y);
  trend.fit = stretch.fit;
  trend.direction = trend.fit.upper < 0   ? Direction::falling
                    : trend.fit.lower > 0 ? Direction::rising
                                          : Direction::flat;
  if (stretch.fresh.first > 0) {
    trend.shift = stretch.fresh.amount;
    trend.shift_step = series.steps[stretch.first + stretch.fresh.first];
    trend.direction = trend.shift < 0 ? Direction::falling : Direction::rising;
  }
  std::tie(trend.bootstrap_low, trend.bootstrap_high) = bootstrap_slope(stretch.x, stretch.y);
  trend.first_step = series.steps[stretch.first];
  trend.shifted = stretch.shifted;
  trend.last_step = series.steps.back();
  return trend;
}

size_t best_of(const ValidationSeries& losses) {
  return static_cast<size_t>(std::min_element(losses.y.begin(), losses.y.end()) - losses.y.begin());
}

// The best point itself is left out: it was chosen for its noise, its neighbours were not.
Rise rise_since(const ValidationSeries& losses, size_t best) {
  Rise rise;
  if (best + kRecent >= losses.size()) {
    return rise;
  }
  // If the best came soon, its neighbours belong to the fall before it: then the line shows the rise.
  const LineFit since = fit_line(std::span(losses.x).subspan(best + 1), std::span(losses.y).subspan(best + 1));
  rise.beyond = since.lower > 0;
  rise.below = since.upper < 0;
  const size_t recent = losses.size() - kRecent;
  std::vector<double> then;
  for (size_t i = best - std::min(best, kAround); i <= best + kAround && i < recent; ++i) {
    if (i != best) {
      then.push_back(losses.y[i]);
    }
  }
  if (then.empty()) {
    return rise;
  }
  int freedom = 1;
  const double noise = noise_of_curve(losses.x, losses.y, freedom);
  rise.amount = mean(std::span(losses.y).last(kRecent)) - mean(then);
  rise.threshold = student_t_990(freedom) * noise * std::sqrt(1.0 / kRecent + 1.0 / static_cast<double>(then.size()));
  rise.beyond = rise.beyond || rise.amount > rise.threshold;
  rise.below = rise.below || rise.amount < -rise.threshold;
  return rise;
}

}  // namespace tandem::observe
