// Reports for people without a browser. Texts from outside cannot become markup (Markdown) or reach a terminal as
// control characters (plain text).
#pragma once

#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

// One run after another, with a table that compares them in front where there are several.
std::string to_markdown(std::span<const RunReport> reports);
std::string to_text(std::span<const RunReport> reports);

inline std::string to_markdown(const RunReport& report) { return to_markdown(std::span(&report, 1)); }
inline std::string to_text(const RunReport& report) { return to_text(std::span(&report, 1)); }

}  // namespace tandem::report
