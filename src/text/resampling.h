// The confidence interval of a corpus score: where it might lie for other sentences of the same kind. It comes from
// scoring random draws of the lines, with replacement and as many as there are (Koehn, 2004), as sacreBLEU's
// --confidence does. It does not cover how scores differ from one training run to another.
#pragma once

#include <cstdint>
#include <vector>

#include "core/philox.h"
#include "text/metric.h"

namespace tandem::text {

constexpr uint32_t kResamplings = 1000;
constexpr uint64_t kResamplingSeed = 12345;

// The interval from the scores of at least one draw; it always contains the score of the corpus itself.
Interval interval_of(std::vector<double> scores, double corpus);

// 95 % of the draws lie within. Texts of equally many lines get the same draws, so that two systems are compared on the
// same sentences. The interval of a single line has no width.
template <class Stats, class Options>
Interval interval(const std::vector<Stats>& lines, const Options& options) {
  constexpr uint32_t kPurpose = 0xB007;
  std::vector<double> scores;
  for (uint32_t i = 0; i < kResamplings; ++i) {
    PhiloxStream random(kResamplingSeed, kPurpose, i);
    Stats drawn = lines[random.below(lines.size())];
    for (size_t line = 1; line < lines.size(); ++line) {
      drawn += lines[random.below(lines.size())];
    }
    scores.push_back(score(drawn, options).score);
  }
  return interval_of(std::move(scores), score(sum(lines), options).score);
}

}  // namespace tandem::text
