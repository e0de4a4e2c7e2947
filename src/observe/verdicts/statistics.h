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
double deviation(std::span<const double> values);  // of a sample; 0 for fewer than two

double median(std::vector<double> values);  // wants one

// Quantile `share` (0 to 1) of values that count `weights` times.
double weighted_quantile(std::vector<std::pair<double, double>> values_and_weights, double share);

// Least squares y = level + slope (x - mean x).
struct LineFit {
  size_t points = 0;
  double slope = 0;
  double noise = 0;        // standard deviation of one y around the line
  double lower = 0;        // slope's interval, 0.5 % beyond each side: NLL and BLEU, up and down, make 2 % in all
  double upper = 0;
};
// Wants at least 3 points of different x.
LineFit fit_line(std::span<const double> x, std::span<const double> y);

// A sudden change of level that no line or parabola explains.
struct LevelShift {
  size_t first = 0;   // index of the first point after it; 0 = there is none
  double amount = 0;  // of the change
};

// The longest end of a series, of 5 to 30 points, that is straight within its noise and without sudden changes of
// level: what a line through the newest points may be fitted to.
struct Stretch {
  std::vector<double> x, y;
  size_t first = 0;      // index of its first point in the series
  bool shifted = false;  // it begins with a sudden change of level
  LevelShift fresh;      // a change that fewer than 5 points follow: taken out of y
  LineFit fit;
};
// Wants at least 5 points.
Stretch newest_stretch(std::span<const double> x, std::span<const double> y);

// 95 % interval of the slope by resampling the residuals; the same numbers give the same interval.
std::pair<double, double> bootstrap_slope(std::span<const double> x, std::span<const double> y);

// Standard deviation of the noise on a smooth curve: each point against the line between its neighbours. Curvature
// makes it larger, never smaller. `freedom` gets its effective degrees (Gasser, Sroka, Jennen-Steinmetz 1986).
double noise_of_curve(std::span<const double> x, std::span<const double> y, int& freedom);

}  // namespace tandem::observe
