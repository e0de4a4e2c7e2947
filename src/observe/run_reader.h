// Reads what a run left behind: metrics, config and the prepared data's counts, of a run that goes on, is over, or is a
// copy. Nothing is locked and nothing is written.
//
// Every file is hostile: torn, binary or nested lines are counted and left out, numbers out of range are not believed.
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
  std::vector<SetupPoint> setups;    // the newest, one a start
  std::vector<TrainPoint> train;     // rising steps
  std::vector<ValidPoint> valid;     // rising steps
  std::vector<SamplePoint> samples;  // the newest
  std::vector<EventPoint> events;    // the newest
  std::vector<ProbePoint> probes;    // rising times
  std::string gpu_name;              // as the probes say
  std::string bleu_signature;

  int64_t lines = 0;
  int64_t unreadable = 0;    // lines that are no records: torn, binary, too long
  int64_t superseded = 0;    // times that the run went back to an earlier step, as far as the file shows it
  int64_t out_of_order = 0;  // records of an earlier step and an earlier time, left out

  int64_t last_step() const;
  double last_time() const;  // of the newest record; 0 = none
  // Train records since the run was last started, by steps: clocks jump. Without a start: all.
  std::span<const TrainPoint> since_start() const;
  double validation_seconds() const;
  double elapsed_seconds() const;  // training time over all starts; 0 = not known
};

// What `tandem prepare` counted.
struct PreparedSide {
  double raw_lines = kUnknown, raw_bytes = kUnknown;
  double cleaned_bytes = kUnknown, cleaned_words = kUnknown;
  double encoded_bytes = kUnknown, tokens = kUnknown;
  double vocabulary = kUnknown, unknown_percent = kUnknown;
};
struct PreparedStats {
  double copies = 1;  // of every training pair, each in other pieces; at least 1
  double raw_pairs = kUnknown, train_pairs = kUnknown, valid_pairs = kUnknown, test_pairs = kUnknown;
  std::vector<std::pair<std::string, double>> dropped{};  // pairs by reason, in the file's order
  PreparedSide source{}, target{};
};

struct RunData {
  std::string name;
  std::vector<RankMetrics> ranks;      // never empty, rising ranks
  std::string config;                  // config.toml as text; empty = none
  std::optional<PreparedStats> stats;  // where the prepared data was found

  const RankMetrics& main() const { return ranks.front(); }
};

// The newest setup record; an empty one where there is none.
SetupPoint setup_of(const RankMetrics& metrics);

// `path`: a run directory, or a single metrics file. Fails where neither is there.
RunData read_run(const std::filesystem::path& path);

// A missing file has no records. A series of train or probe points that reaches `most_points` (a power of two) is
// merged to half of them.
RankMetrics read_rank(const std::filesystem::path& path, int rank = 0, size_t most_points = 1 << 14);

// Nothing where stats.json is missing or not what prepare writes.
std::optional<PreparedStats> read_stats(const std::filesystem::path& prepared);

}  // namespace tandem::observe
