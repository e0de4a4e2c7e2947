// The answer to one question about a run: a label, how sure it is, and the numbers behind it.
//
// Verdicts are pure functions of facts, which are computed once from what was read (observe/run_reader.h) and what was
// planned. report/sentences puts them into words. A threshold is a statistic (a standard error, a quantile of Student's
// t) or has its reason beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "observe/fields.h"

namespace tandem::observe {

enum class Confidence : uint8_t { low, medium, high };

inline const char* name_of(Confidence confidence) {
  return confidence == Confidence::high ? "high" : confidence == Confidence::medium ? "medium" : "low";
}

// Confidence by a number of measurements: 20 give high, 5 medium.
inline Confidence confidence_by(size_t measurements) {
  return measurements >= 20 ? Confidence::high : measurements >= 5 ? Confidence::medium : Confidence::low;
}

constexpr double kWorth = 0.1;  // share that is worth a word: a tenth of the time is what a user could win back

struct Figure {
  std::string name;  // snake_case
  double value = 0;  // NaN = not known
  std::string unit;  // empty = a count or share
};

struct Verdict {
  std::string label;  // one of a few words for each question
  Confidence confidence = Confidence::low;
  std::vector<Figure> figures{};

  Verdict& add(std::string name, double value, std::string unit = "") {
    figures.push_back({std::move(name), value, std::move(unit)});
    return *this;
  }
};

// The run as the config plans it. 0 = not set or not known.
struct RunPlan {
  int64_t max_steps = 0;
  double max_epochs = 0;
  double max_minutes = 0;
  std::string schedule;                    // one sentence: policy, formula with its numbers, peak; empty = not known
  std::function<double(int64_t)> rate_at;  // planned learning rate of a step, from 0; empty = not known
};

}  // namespace tandem::observe
