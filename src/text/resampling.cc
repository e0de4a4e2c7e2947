#include "text/resampling.h"

#include <algorithm>
#include <numeric>

namespace tandem::text {

Interval interval_of(std::vector<double> scores, double corpus) {
  std::sort(scores.begin(), scores.end());
  const size_t beyond = scores.size() / 40;  // 2.5 % on each side
  const double low = scores[beyond], high = scores[scores.size() - 1 - beyond];
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return {.low = std::min(low, corpus),
          .high = std::max(high, corpus),
          .mean = sum / static_cast<double>(scores.size()),
          .half_width = (high - low) / 2};
}

}  // namespace tandem::text
