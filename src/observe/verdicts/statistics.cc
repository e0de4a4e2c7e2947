#include "observe/verdicts/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

namespace tandem::observe {

namespace {

constexpr double k975[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                           2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                           2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double k990[] = {31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764,
                           2.718,  2.681, 2.650, 2.624, 2.602, 2.583, 2.567, 2.552, 2.539, 2.528,
                           2.518,  2.508, 2.500, 2.492, 2.485, 2.479, 2.473, 2.467, 2.462, 2.457};
constexpr double k995[] = {63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
                           3.106,  3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
                           2.831,  2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750};
constexpr size_t kShortest = 5, kLongest = 30;  // points of a straight tail
constexpr int kResamples = 1000;

// Beyond the table it is the normal distribution's quantile with Fisher's correction.
double from_table(std::span<const double> table, int freedom, double normal) {
  if (freedom <= static_cast<int>(table.size())) {
    return table[static_cast<size_t>(std::max(freedom, 1) - 1)];
  }
  return normal + (normal * normal * normal + normal) / (4.0 * freedom);
}

double product(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double sum_of_squares(std::span<const double> values) { return product(values, values); }

std::vector<double> centred(std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  const double middle = mean(values);
  std::ranges::for_each(result, [&](double& value) { value -= middle; });
  return result;
}

// The least noise to assume: losses are sums of f32, so differences below this share of the size are rounding.
double rounding_noise(std::span<const double> y) {
  double most = 0;
  for (const double value : y) {
    most = std::max(most, std::fabs(value));
  }
  return std::max(most * 1e-6, 1e-300);
}

// Subtracts amount * shape.
void take_off(std::vector<double>& values, double amount, std::span<const double> shape) {
  std::transform(values.begin(), values.end(), shape.begin(), values.begin(),
                 [&](double value, double part) { return value - amount * part; });
}

std::vector<double> residuals(std::span<const double> x, std::span<const double> y, double& slope) {
  const std::vector<double> dx = centred(x);
  std::vector<double> rest = centred(y);
  slope = product(dx, rest) / std::max(sum_of_squares(dx), 1e-300);
  take_off(rest, slope, dx);
  return rest;
}

// `values` minus their projections onto the shapes, which are orthogonal.
std::vector<double> rest_of(std::span<const double> values, const std::vector<std::vector<double>>& shapes) {
  std::vector<double> rest(values.begin(), values.end());
  for (const std::vector<double>& shape : shapes) {
    take_off(rest, product(rest, shape) / std::max(sum_of_squares(shape), 1e-300), shape);
  }
  return rest;
}

// 1, x, x^2 up to `degree`, made orthogonal.
std::vector<std::vector<double>> polynomials(std::span<const double> x, int degree) {
  const std::vector<double> dx = centred(x);
  std::vector<double> power(x.size(), 1.0);
  std::vector<std::vector<double>> shapes{power};
  for (int i = 0; i < degree; ++i) {
    std::transform(power.begin(), power.end(), dx.begin(), power.begin(), std::multiplies<>());
    shapes.push_back(rest_of(power, shapes));
  }
  return shapes;
}

// The amount of `shape` in y beyond what `others` explain, and its ratio to its standard error.
struct Part {
  double amount = 0, ratio = 0;
};
Part part_of(std::span<const double> y, std::span<const double> shape, const std::vector<std::vector<double>>& others) {
  const std::vector<double> own = rest_of(shape, others), rest = rest_of(y, others);
  const double size = std::max(sum_of_squares(own), 1e-300);
  const double amount = product(own, rest) / size;
  const double left = std::max(sum_of_squares(rest) - amount * amount * size, 0.0);
  const double freedom = static_cast<double>(y.size()) - static_cast<double>(others.size()) - 1;
  const double noise = std::max(std::sqrt(left / freedom), rounding_noise(y));
  return {amount, std::fabs(amount) * std::sqrt(size) / noise};
}

// Whether a parabola fits better than a line, at 95 %.
bool curved(std::span<const double> x, std::span<const double> y) {
  const int freedom = static_cast<int>(x.size()) - 3;
  if (freedom < 1) {
    return false;
  }
  std::vector<double> squares = centred(x);
  std::ranges::for_each(squares, [](double& value) { value *= value; });
  return part_of(y, squares, polynomials(x, 1)).ratio > student_t_975(freedom);
}

// Needs at least 5 points.
LevelShift level_shift(std::span<const double> x, std::span<const double> y) {
  LevelShift shift;
  const std::vector<std::vector<double>> smooth = polynomials(x, 2);
  // 1.5 times the quantile, as the place is chosen among all: noise alone exceeds it in 1 to 2 % of cases.
  double most = 1.5 * student_t_995(static_cast<int>(x.size()) - 4);
  for (size_t first = 1; first < x.size(); ++first) {
    std::vector<double> step(x.size(), 0.0);
    std::fill(step.begin() + static_cast<std::ptrdiff_t>(first), step.end(), 1.0);
    const Part part = part_of(y, step, smooth);
    // A bend that is no parabola also looks like a step somewhere, but does not jump between two neighbours.
    const bool sudden = (y[first] - y[first - 1]) / part.amount > 0.5;
    if (part.ratio > most && sudden) {
      most = part.ratio;
      shift = {first, part.amount};
    }
  }
  return shift;
}

// Index of the first point of the longest tail of the series, of 5 to 30 points, that is straight within its noise,
// without the part that a bend before it may reach into.
size_t straight_tail(std::span<const double> x, std::span<const double> y) {
  const size_t begin = x.size() > kLongest ? x.size() - kLongest : 0;
  size_t first = begin;
  while (x.size() - first > kShortest && curved(x.subspan(first), y.subspan(first))) {
    ++first;
  }
  // The search stops when the bend is no longer seen, which is before it is over, so the first third is left out.
  const size_t length = x.size() - first;
  return first == begin ? first : x.size() - std::min(length, std::max(kShortest, length - length / 3));
}

}  // namespace

double student_t_975(int freedom) { return from_table(k975, freedom, 1.959964); }
double student_t_990(int freedom) { return from_table(k990, freedom, 2.326348); }
double student_t_995(int freedom) { return from_table(k995, freedom, 2.575829); }

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  return values.size() < 2 ? 0 : std::sqrt(sum_of_squares(centred(values)) / static_cast<double>(values.size() - 1));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double weighted_quantile(std::vector<std::pair<double, double>> values_and_weights, double share) {
  std::sort(values_and_weights.begin(), values_and_weights.end());
  double all = 0;
  for (const auto& [value, weight] : values_and_weights) {
    all += weight;
  }
  double reached = 0;
  for (const auto& [value, weight] : values_and_weights) {
    reached += weight;
    if (reached >= share * all) {
      return value;
    }
  }
  return 0;
}

LineFit fit_line(std::span<const double> x, std::span<const double> y) {
  LineFit fit;
  fit.points = x.size();
  const std::vector<double> rest = residuals(x, y, fit.slope);
  const int freedom = static_cast<int>(x.size()) - 2;
  fit.noise = std::max(std::sqrt(sum_of_squares(rest) / std::max(freedom, 1)), rounding_noise(y));
  const double standard_error = fit.noise / std::sqrt(std::max(sum_of_squares(centred(x)), 1e-300));
  fit.lower = fit.slope - student_t_995(freedom) * standard_error;
  fit.upper = fit.slope + student_t_995(freedom) * standard_error;
  return fit;
}

Stretch newest_stretch(std::span<const double> x, std::span<const double> y) {
  Stretch s;
  s.first = straight_tail(x, y);
  LevelShift shift = level_shift(x.subspan(s.first), y.subspan(s.first));
  while (shift.first > 0 && x.size() - s.first - shift.first >= kShortest) {
    s.first += shift.first;
    s.shifted = true;
    shift = level_shift(x.subspan(s.first), y.subspan(s.first));
  }
  s.fresh = shift;
  s.x.assign(x.begin() + static_cast<std::ptrdiff_t>(s.first), x.end());
  s.y.assign(y.begin() + static_cast<std::ptrdiff_t>(s.first), y.end());
  for (size_t i = shift.first; shift.first > 0 && i < s.y.size(); ++i) {
    s.y[i] -= shift.amount;
  }
  s.fit = fit_line(s.x, s.y);
  return s;
}

std::pair<double, double> bootstrap_slope(std::span<const double> x, std::span<const double> y) {
  double slope = 0;
  const std::vector<double> rest = residuals(x, y, slope);
  const std::vector<double> dx = centred(x);
  const size_t n = x.size();
  // Residuals are smaller than the noise: the line takes two degrees of freedom.
  const double scale = n > 2 ? std::sqrt(static_cast<double>(n) / static_cast<double>(n - 2)) : 1;
  const double size = std::max(sum_of_squares(dx), 1e-300);
  std::mt19937_64 random(1);
  std::vector<double> slopes(kResamples);
  for (double& resampled : slopes) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += dx[i] * rest[random() % n];
    }
    resampled = slope + scale * sum / size;
  }
  std::sort(slopes.begin(), slopes.end());
  return {slopes[kResamples * 25 / 1000], slopes[kResamples * 975 / 1000 - 1]};
}

double noise_of_curve(std::span<const double> x, std::span<const double> y, int& freedom) {
  double sum = 0;
  for (size_t i = 1; i + 1 < x.size(); ++i) {
    const double right = (x[i] - x[i - 1]) / std::max(x[i + 1] - x[i - 1], 1e-300);
    const double off = y[i] - ((1 - right) * y[i - 1] + right * y[i + 1]);
    sum += off * off / (1 + right * right + (1 - right) * (1 - right));
  }
  const size_t terms = x.size() > 2 ? x.size() - 2 : 0;
  freedom = std::max(static_cast<int>(static_cast<double>(terms) * 18 / 35), 1);
  return std::max(std::sqrt(sum / static_cast<double>(std::max<size_t>(terms, 1))), rounding_noise(y));
}

}  // namespace tandem::observe
