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

double Trend::change(double slope, double steps) const {
  return slope * std::log1p(steps / static_cast<double>(std::max<int64_t>(last_step, 1)));
}

Trend trend_of(const ValidationSeries& series) {
  Trend trend;
  const size_t first = straight_tail(series.x, series.y);
  const std::span<const double> x = std::span(series.x).subspan(first), y = std::span(series.y).subspan(first);
  trend.fit = fit_line(x, y);
  trend.direction = trend.fit.upper < 0   ? Direction::falling
                    : trend.fit.lower > 0 ? Direction::rising
                                          : Direction::flat;
  std::tie(trend.bootstrap_low, trend.bootstrap_high) = bootstrap_slope(x, y);
  trend.first_step = series.steps[first];
  trend.last_step = series.steps.back();
  return trend;
}

}  // namespace tandem
