// Writes a rank's metrics, in segments that grow coarser with age.
//
// A file that reaches `segment_bytes` is closed (renamed). Once three closed ones are equally coarse, the two oldest
// are thinned into one, written aside and renamed, so that a run of N segments keeps about 2 log2(N) of them. If the
// process is killed at any moment, the files still read the same.
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

  // Continues or creates the file, and its directory if needed. A last line that a dying process left torn is cut off,
  // and so are the records of steps after `last`.
  explicit MetricsWriter(const std::filesystem::path& path, int64_t last = INT64_MAX,
                         int64_t segment_bytes = kSegmentBytes);

  // Never fails: data that cannot be written is dropped with a warning (append_file.h).
  void write(const Record& record);

  // Cuts the metrics before the first record of a step after `last`, to which the run has returned. A thinned record
  // that reaches beyond `last` is cut, too.
  void cut_after(int64_t last);

  void sync() { file_->sync(); }
  Descriptor duplicate() const { return file_->duplicate(); }

 private:
  void close_segment();
  void thin_once();

  std::filesystem::path path_;
  int64_t segment_bytes_;
  std::optional<AppendFile> file_;
};

// Makes old metrics coarser, but keeps them true. Copies all records of `files`, oldest first, to `out` (fsynced).
// Every two neighbouring train records of a start are merged, and every two probe records (fields.h has the rules);
// other kinds are not changed. Lines that are not records are left out.
void thin(const std::vector<std::filesystem::path>& files, const std::filesystem::path& out);

}  // namespace tandem::observe
