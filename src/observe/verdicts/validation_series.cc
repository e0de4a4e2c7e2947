#include "observe/verdicts/validation_series.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

namespace tandem {

namespace {

// Losses of a model are tens of nats at most, scores at most 100; what is beyond was not measured.
constexpr double kBelievable = 1e4;

}  // namespace

ValidationSeries validation_series(const RankMetrics& metrics, std::vector<double ValidPoint::*> wanted) {
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

}  // namespace tandem
