// Writes a rank's metrics, in segments that grow coarser with age.
//
// A file that has grown to `segment_bytes` is closed (renamed); of three closed ones of the same coarseness the two
// oldest are thinned into one, written aside and renamed, so that a run of N segments keeps about 2 log2(N) of them. A
// process that is killed at any moment leaves files that read the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "observe/append_file.h"
#include "observe/metrics.h"

namespace tandem::observe {

class MetricsWriter {
 public:
  static constexpr int64_t kSegmentBytes = 2 << 20;

  // Continues the file, or begins it; its directory is created where needed. A last line that a dying process left torn
  // is cut off, and so are the records of steps after `last`.
  explicit MetricsWriter(const std::filesystem::path& path, int64_t last = INT64_MAX,
                         int64_t segment_bytes = kSegmentBytes);

  // Once the writer is made this never fails: what cannot be written is dropped with a warning (append_file.h).
  void write(const Record& record);

  // After a return to step `last`: the metrics end before the first record of a later step. A thinned record that
  // reaches beyond `last` is such a record.
  void cut_after(int64_t last);

  void sync() { file_->sync(); }

 private:
  void close_segment();
  void thin_once();

  std::filesystem::path path_;
  int64_t segment_bytes_;
  std::optional<AppendFile> file_;
};

// Makes old metrics coarser without making them untrue. Writes all records of `files`, oldest first, to `out`
// (fsynced): every two neighbouring train records of a start as one, and every two probe records (fields.h says how);
// all other kinds as they are. Lines that are no records are left out.
void thin(const std::vector<std::filesystem::path>& files, const std::filesystem::path& out);

}  // namespace tandem::observe
