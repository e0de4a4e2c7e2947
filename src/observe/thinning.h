// Makes old metrics coarser without making them untrue: neighbouring windows become one, nothing is dropped.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "observe/metrics.h"
#include "observe/metrics_line.h"

namespace tandem {

Record to_record(const MetricsLine& line);

// Both stretches in one record of kind "train" or "probe", at the second's step and time: sums added, means weighted by
// what they are means over (target tokens, steps, seconds), and what is of a moment as in the second. `records` counts
// the records that it stands for, `unfinite` those of them with a loss that is not finite.
Record merged(const Record& first, const Record& second);

// Whether a number of a record of kind "train" or "probe" is a sum over its stretch.
bool is_sum(const std::string& kind, const std::string& name);

// Writes all records of `files`, oldest first, to `out` (fsynced): every two neighbouring train records of a start as
// one, and every two probe records; all other kinds as they are. Lines that are no records are left out.
void thin(const std::vector<std::filesystem::path>& files, const std::filesystem::path& out);

}  // namespace tandem
