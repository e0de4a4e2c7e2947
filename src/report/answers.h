// Every question about a run with its answer.
#pragma once

#include <string>
#include <vector>

#include "observe/verdicts/facts.h"

namespace tandem::report {

struct Answer {
  std::string key;       // "how_long"
  std::string question;  // "How long does it take?"
  observe::Verdict verdict;
  std::string text;  // one sentence
};

// In the order of the report.
std::vector<Answer> answers_to(const observe::RunFacts& facts);

}  // namespace tandem::report
