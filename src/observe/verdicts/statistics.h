// The statistics that verdicts rest on: small samples, unknown noise, uneven spacing.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tandem::observe {

// Quantile of Student's t with `freedom` >= 1 degrees, at 0.975 (two-sided 95 %), 0.99 and 0.995.
double student_t_975(int freedom);
double student_t_990(int freedom);
double student_t_995(int freedom);

double mean(std::span<const double> values);
double deviation(std::span<const double> values);  // standard deviation of a sample; 0 for fewer than two values

double median(std::vector<double> values);  // needs at least one

// Quantile `share` (0 to 1) of values that count `weights` times.
double weighted_quantile(std::vector<std::pair<double, double>> values_and_weights, double share);

// Least squares y = level + slope (x - mean x).
struct LineFit {
  size_t points = 0;
  double slope = 0;
  double noise = 0;  // standard deviation of one y around the line
  double lower = 0;  // 99 % interval of the slope: NLL and BLEU, up and down, err in 2 % of cases in all
  double upper = 0;
};
// Needs at least 3 points of different x.
LineFit fit_line(std::span<const double> x, std::span<const double> y);

// A sudden change of level that no line or parabola explains.
struct LevelShift {
  size_t first = 0;   // index of the first point after it; 0 = there is none
  double amount = 0;  // size of the change
};

// The longest tail of a series, of 5 to 30 points, that is straight within its noise and has no sudden change of level,
// so that a line can be fitted to it.
struct Stretch {
  std::vector<double> x, y;
  size_t first = 0;      // index of its first point in the series
  bool shifted = false;  // the stretch begins with a sudden change of level
  LevelShift fresh;      // a change that fewer than 5 points follow: removed from y
  LineFit fit;
};
// Needs at least 5 points.
Stretch newest_stretch(std::span<const double> x, std::span<const double> y);

// 95 % interval of the slope by resampling the residuals; the same numbers give the same interval.
std::pair<double, double> bootstrap_slope(std::span<const double> x, std::span<const double> y);

// Standard deviation of the noise on a smooth curve, from each point's distance to its neighbours' line. Curvature
// makes it larger, never smaller. `freedom` gets its effective degrees (Gasser, Sroka, Jennen-Steinmetz 1986).
double noise_of_curve(std::span<const double> x, std::span<const double> y, int& freedom);

}  // namespace tandem::observe
