// Makes old metrics coarser without making them untrue: neighbouring records become one, nothing is dropped.
#pragma once

#include <filesystem>
#include <vector>

namespace tandem::observe {

// Writes all records of `files`, oldest first, to `out` (fsynced): every two neighbouring train records of a start as
// one, and every two probe records (fields.h says how); all other kinds as they are. Lines that are no records are left
// out.
void thin(const std::vector<std::filesystem::path>& files, const std::filesystem::path& out);

}  // namespace tandem::observe
