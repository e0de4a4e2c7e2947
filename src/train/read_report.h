// Makes the report of a run directory from its metrics, config, statistics of the data and checkpoints.
#pragma once

#include <filesystem>

#include "report/run_report.h"

namespace tandem::train {

struct ReportOptions {
  std::filesystem::path data;  // prepared directory; empty: the copy of stats.json in the run
  double price_per_hour = 0;   // 0 = not given
};

// Only reads files. `run`: a run directory or a single metrics file. An unreadable config or checkpoint is left out;
// fails if there is no run.
report::RunReport read_report(const std::filesystem::path& run, const ReportOptions& options = {});

}  // namespace tandem::train
