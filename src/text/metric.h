// What BLEU, chrF and TER have in common. Each metric M offers the same functions:
//   statistics(hypotheses, references, MOptions)  one MStats a line, for sums over any set of lines
//   score(MStats, MOptions)                       the score of one line's or of summed statistics
//   signature(MOptions, number of references)     how the score was made, in sacreBLEU's form
// Scores equal those of the sacreBLEU package (kDefinition); a test compares the two.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::text {

using Lines = std::span<const std::string>;
using References = std::vector<std::vector<std::string>>;  // [reference][line]

// The last part of a signature: the sacreBLEU version whose definitions are followed, and the program.
constexpr char kDefinition[] = "2.6.0+tandem";

// The spread of a score over resamplings of its lines (text/resampling.h).
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

}  // namespace tandem::text
