// `tandem watch --text`: runs on a terminal.
#pragma once

#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

// One line about a run, for a file or pipe: name, step, losses, how long.
std::string watch_line(const RunReport& report);

// A whole screen of at most `rows` lines of at most `columns` characters: one run with its answers, several with a line
// each.
std::string watch_screen(std::span<const RunReport> reports, int columns, int rows);

// No run goes on any more, and there is one.
bool all_ended(std::span<const RunReport> reports);

}  // namespace tandem::report
