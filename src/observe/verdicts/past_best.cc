#include "observe/verdicts/past_best.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tandem {

namespace {

constexpr size_t kRecent = 3;  // validations that stand for now
constexpr size_t kAround = 2;  // neighbours on each side that stand for the best

}  // namespace

size_t best_of(const ValidationSeries& losses) {
  return static_cast<size_t>(std::min_element(losses.y.begin(), losses.y.end()) - losses.y.begin());
}

// The best point itself is left out: it was chosen for its noise, its neighbours were not.
Rise rise_since(const ValidationSeries& losses, size_t best) {
  Rise rise;
  if (best + kRecent >= losses.size()) {
    return rise;
  }
  // Where the best came soon, its neighbours are of the fall before it: then the line shows the rise.
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
  rise.known = true;
  rise.amount = mean(std::span(losses.y).last(kRecent)) - mean(then);
  rise.threshold = student_t_990(freedom) * noise * std::sqrt(1.0 / kRecent + 1.0 / static_cast<double>(then.size()));
  rise.beyond = rise.beyond || rise.amount > rise.threshold;
  rise.below = rise.below || rise.amount < -rise.threshold;
  return rise;
}

}  // namespace tandem
