// A metrics file as it is, for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "observe/metrics.h"
#include "observe/segments.h"

namespace tandem::testing {

struct Metrics {
  std::vector<observe::Record> records;
  int64_t skipped = 0;  // lines that are no records
};

// Of all segments of the file, oldest first (segments.h). A missing file has no records; one that cannot be read is an
// error.
inline Metrics read_metrics(const std::filesystem::path& path) {
  Metrics metrics;
  for (std::ifstream& file : observe::open_segments(path)) {
    for (std::string line; std::getline(file, line);) {
      if (std::optional<observe::Record> record = observe::parse_record(line)) {
        metrics.records.push_back(std::move(*record));
      } else {
        ++metrics.skipped;
      }
    }
  }
  return metrics;
}

}  // namespace tandem::testing
