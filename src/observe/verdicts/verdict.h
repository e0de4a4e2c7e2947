// The answer to one question about a run: a sentence, how sure it is, and the numbers behind it.
//
// Verdicts are pure functions of what was read (observe/run_reader.h) and what was planned. A threshold is a statistic
// (a standard error, a quantile of Student's t) or stands beside its reason.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tandem {

enum class Confidence : uint8_t { low, medium, high };
const char* name_of(Confidence confidence);

struct Figure {
  std::string name;  // snake_case
  double value = 0;  // NaN = not known
  std::string unit;  // empty = a count or share
};

struct Verdict {
  std::string key;       // "how_long"
  std::string question;  // "How long does it take?"
  std::string label;     // the answer for machines, one of a few words a question
  std::string answer;    // one sentence
  Confidence confidence = Confidence::low;
  std::vector<Figure> figures{};

  Verdict& add(std::string name, double value, std::string unit = "") {
    figures.push_back({std::move(name), value, std::move(unit)});
    return *this;
  }
  double figure(const std::string& name) const;  // NaN when absent
};

// What the config says. 0 = not set or not known.
struct RunPlan {
  int64_t max_steps = 0;
  double max_epochs = 0;
  double max_minutes = 0;
  std::string schedule;                    // policy, formula with its numbers, peak: one sentence; empty = not known
  std::function<double(int64_t)> rate_at;  // planned learning rate of a step, from 0; empty = not known
};

}  // namespace tandem
