// The functions that BLEU, chrF and TER share. Each metric M offers the same functions:
//   statistics(hypotheses, references, MOptions)  one MStats a line, for sums over any set of lines
//   score(MStats, MOptions)                       the score of one line's or of summed statistics
//   signature(MOptions, number of references)     how the score was made, in sacreBLEU's form
// Scores equal those of the sacreBLEU package (kDefinition); a test compares the two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/philox.h"

namespace tandem::text {

using Lines = std::span<const std::string>;
using References = std::vector<std::vector<std::string>>;  // [reference][line]

// The last part of a signature: the sacreBLEU version whose definitions are followed, and the program.
constexpr char kDefinition[] = "2.6.0+tandem";

// The spread of a score over resamplings of its lines (see below).
struct Interval {
  double low = 0, high = 0;         // 95 % interval; it contains the score itself
  double mean = 0, half_width = 0;  // as sacreBLEU states it
};

struct MetricScore {
  std::string name;     // "BLEU", "chrF2++", "TER"
  double score = 0;     // percent
  std::string details;  // what sacreBLEU prints after the score; may be empty
  std::optional<Interval> interval = std::nullopt;

  // "66.37", with an interval "66.37 (μ = 66.20 ± 2.10)".
  std::string number(int width = 2) const;
  // "BLEU|nrefs:1|... = 66.37 83.3/71.4/..."; an empty signature is left out.
  std::string text(int width = 2, const std::string& signature = "") const;
};

// Fails unless there is a line, a reference, and every reference has as many lines as there are hypotheses.
void check_lines(Lines hypotheses, const References& references);

// MStats must have operator+=.
template <class Stats>
Stats sum(const std::vector<Stats>& lines) {
  Stats result = lines.front();
  for (size_t i = 1; i < lines.size(); ++i) {
    result += lines[i];
  }
  return result;
}

// The score of a whole text.
template <class Options>
auto corpus_score(Lines hypotheses, const References& references, const Options& options) {
  return score(sum(statistics(hypotheses, references, options)), options);
}

// ---- the confidence interval of a corpus score

// The range in which the score might lie for other sentences of the same kind, from the scores of random draws of the
// lines, with replacement and as many as there are (Koehn, 2004), as sacreBLEU's --confidence does. It does not cover
// the differences between one training run and another.

constexpr uint32_t kResamplings = 1000;
constexpr uint64_t kResamplingSeed = 12345;

// The interval from the scores of at least one draw; it always contains the score of the corpus itself.
Interval interval_of(std::vector<double> scores, double corpus);

// Contains 95 % of the draws. Texts with equally many lines get the same draws, so that two systems are compared on the
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

// The score of a whole text with its interval; resampling 3,000 lines for BLEU takes some 60 ms.
template <class Options>
auto corpus_score_with_interval(Lines hypotheses, const References& references, const Options& options) {
  const auto lines = statistics(hypotheses, references, options);
  auto result = score(sum(lines), options);
  result.interval = interval(lines, options);
  return result;
}

}  // namespace tandem::text
