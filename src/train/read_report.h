// The report of a run directory: metrics, and what config, prepared data and checkpoints say besides.
#pragma once

#include <filesystem>

#include "report/run_report.h"
#include "train/config.h"

namespace tandem {

struct ReportOptions {
  std::filesystem::path data;  // prepared directory; empty: the run's own copy of its stats.json
  double price_per_hour = 0;   // 0 = not given
};

RunPlan plan_of(const TrainConfig& config);

// Of the newest checkpoint below the run directory and of all that are kept; step -1 where there is none.
CheckpointFacts checkpoint_facts(const std::filesystem::path& run);

// Reads files only. `run`: a run directory or a single metrics file. A config or checkpoint that cannot be read is left
// out; fails where there is no run.
RunReport read_report(const std::filesystem::path& run, const ReportOptions& options = {});

// report.html, report.md and report.json of the run, into its directory.
void write_run_reports(const std::filesystem::path& run, const ReportOptions& options = {});

}  // namespace tandem
