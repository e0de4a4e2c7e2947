// One question about a run, answered from the run's data.
#pragma once

#include <algorithm>
#include <string>

#include "observe/figure_of.h"
#include "report/run_report.h"

namespace tandem::testing {

struct Asked {
  std::string label, answer;
  observe::Confidence confidence = observe::Confidence::low;
  observe::Verdict verdict;
  double figure(const std::string& name) const { return figure_of(verdict, name); }
};

inline Asked ask(const std::string& key, const observe::RunData& run, const observe::RunPlan& plan = {},
                 const observe::CheckpointFacts& checkpoint = {}, double now = 0, double price = 0) {
  const std::vector<report::Answer> answers = report::make_report(run, plan, checkpoint, now, price).answers;
  const report::Answer& answer =
      *std::find_if(answers.begin(), answers.end(), [&](const report::Answer& a) { return a.key == key; });
  return {answer.verdict.label, answer.text, answer.verdict.confidence, answer.verdict};
}

}  // namespace tandem::testing
