#include "text/metric.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace tandem::text {

std::string MetricScore::number(int width) const {
  const std::string text = fmt::format("{:.{}f}", score, width);
  return interval ? fmt::format("{} (μ = {:.{}f} ± {:.{}f})", text, interval->mean, width, interval->half_width, width)
                  : text;
}

std::string MetricScore::text(int width, const std::string& signature) const {
  return fmt::format("{}{}{} = {}{}{}", name, signature.empty() ? "" : "|", signature, number(width),
                     details.empty() ? "" : " ", details);
}

void check_lines(Lines hypotheses, const References& references) {
  require(!hypotheses.empty(), "there is no line to score");
  require(!references.empty(), "a score needs at least one reference");
  for (size_t i = 0; i < references.size(); ++i) {
    require(references[i].size() == hypotheses.size(),
            "there are {} translations but {} lines in reference {}: each line needs its reference", hypotheses.size(),
            references[i].size(), i + 1);
  }
}

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
