// The truth about a run on one page: verdicts first, then tables. As Markdown, JSON (docs/formats.md) or plain text.
//
// Sentences, configs and details come from outside: in Markdown they are escaped so that no markup and no HTML gets
// through, in JSON also <, > and &, and in text no control character reaches the terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

struct RunReport {
  RunData run;
  std::vector<Verdict> verdicts;
  double time = 0;  // Unix seconds of the making
};

// All verdicts that the run's data can answer, in the order of the report.
RunReport make_report(RunData run, const RunPlan& plan, double now, double price_per_hour);

std::string to_markdown(const RunReport& report);
std::string to_json(const RunReport& report);
std::string to_text(const RunReport& report);

// One line of text without meaning to Markdown or HTML; bytes that are not UTF-8 become U+FFFD.
std::string markdown_escaped(const std::string& text);
// One line of printable text.
std::string printable(const std::string& text);

}  // namespace tandem
