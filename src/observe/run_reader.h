// Reads the files of a run that is in progress, ended or copied: metrics, config and the prepared data's counts.
// Nothing is locked and nothing is written.
//
// No file is trusted: torn, binary or nested lines are counted and left out, numbers out of range are not believed.
// After a resume or rollback the records of later steps are superseded: a record of an earlier step and a later time
// removes them, and the last record of a step wins. Memory is bounded however long the run: neighbouring train records
// are merged into coarser ones whose sums stay exact, so a million records take some megabytes. A probe record never
// removes others: its thread may be a step behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "observe/fields.h"

namespace tandem::observe {

// The metrics of one rank, all segments together.
struct RankMetrics {
  int rank = 0;
  std::vector<SetupPoint> setups;    // one for each start, the newest ones
  std::vector<TrainPoint> train;     // rising steps
  std::vector<ValidPoint> valid;     // rising steps
  std::vector<SamplePoint> samples;  // the newest
  std::vector<EventPoint> events;    // the newest
  std::vector<ProbePoint> probes;    // rising times
  std::string gpu_name;              // as the probes found it
  std::string bleu_signature;

  int64_t lines = 0;
  int64_t unreadable = 0;    // lines that are no records: torn, binary, too long
  int64_t superseded = 0;    // returns to an earlier step, as far as the file shows them
  int64_t out_of_order = 0;  // records left out: earlier in step and time; probes: in time

  int64_t last_step() const;
  double last_time() const;  // time of the newest record; 0 = none
  // Train records since the last start, found by step since clocks jump; all if no start is recorded.
  std::span<const TrainPoint> since_start() const;
  double validation_seconds() const;
  double elapsed_seconds() const;  // training time over all starts; 0 = not known
};

// Counts of `tandem prepare`.
struct PreparedSide {
  double raw_lines = kUnknown, raw_bytes = kUnknown;
  double cleaned_bytes = kUnknown, cleaned_words = kUnknown;
  double encoded_bytes = kUnknown, tokens = kUnknown;
  double vocabulary = kUnknown, unknown_percent = kUnknown;
};
struct PreparedStats {
  double copies = 1;  // copies of every training pair, each split into other pieces; at least 1
  double raw_pairs = kUnknown, train_pairs = kUnknown, valid_pairs = kUnknown, test_pairs = kUnknown;
  std::vector<std::pair<std::string, double>> dropped{};  // pairs by reason, in the file's order
  PreparedSide source{}, target{};
};

struct RunData {
  std::string name;
  std::vector<RankMetrics> ranks;      // never empty, rising ranks
  std::string config;                  // config.toml as text; empty = none
  std::optional<PreparedStats> stats;  // none if the prepared data was not found

  const RankMetrics& main() const { return ranks.front(); }
};

// The newest setup record; an empty one if there is none.
SetupPoint setup_of(const RankMetrics& metrics);

// `path`: a run directory, or a single metrics file. Fails if it is neither.
RunData read_run(const std::filesystem::path& path);

// A missing file has no records. A series of train or probe points that reaches `most_points` (a power of two) is
// merged to half of them.
RankMetrics read_rank(const std::filesystem::path& path, int rank = 0, size_t most_points = 1 << 14);

// Nothing if stats.json is missing or is not a JSON object.
std::optional<PreparedStats> read_stats(const std::filesystem::path& prepared);

}  // namespace tandem::observe
