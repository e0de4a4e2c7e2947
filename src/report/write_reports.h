// Reports as files.
#pragma once

#include <filesystem>
#include <span>

#include "report/run_report.h"

namespace tandem {

// Writes report.html, report.md and report.json into the directory, each in one step, so that a reader always finds
// whole ones. Makes the directory where needed.
void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory);

}  // namespace tandem
