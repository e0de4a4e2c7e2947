// Reads what a run left behind: metrics, config and the prepared data's counts, of a run that goes on, is over, or is a
// copy. Nothing is locked and nothing is written.
//
// Every file is hostile: torn, binary or nested lines are counted and left out, numbers out of range are not believed.
// After a resume or rollback the records of later steps are superseded: a record of an earlier step and a later time
// removes them, and the last record of a step wins. Memory is bounded however long the run: neighbouring train records
// are merged into coarser ones whose sums stay exact, so a million records take about a megabyte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // not in the record, or measured as NaN

// A stretch of steps, up to and with `step`. Sums are over the stretch.
struct TrainPoint {
  int64_t step = 0;
  double time = 0;      // Unix seconds of its end
  double steps = 0;     // steps in the stretch
  double records = 1;   // train records in it
  double unfinite = 0;  // of these, with a loss that is not finite
  // Means over the steps of the stretch that have one.
  double loss = kUnknown, nll = kUnknown, accuracy = kUnknown;
  // At its end.
  double learning_rate = kUnknown, gradient_norm = kUnknown, epoch = kUnknown, elapsed_seconds = kUnknown,
         peak_memory_bytes = kUnknown;
  // Sums.
  double pairs = 0, source_tokens = 0, target_tokens = 0;
  double compute_seconds = 0, data_seconds = 0, validation_seconds = 0, checkpoint_seconds = 0;
  double skipped_steps = 0;

  double step_seconds() const { return compute_seconds + data_seconds; }
};

struct ValidPoint {
  int64_t step = 0;
  double time = 0;
  double nll = kUnknown, train_nll = kUnknown, accuracy = kUnknown;  // nats a target token
  double bleu = kUnknown, chrf = kUnknown;                           // 0 to 100
  double seconds = kUnknown, elapsed_seconds = kUnknown;
};

struct SamplePoint {
  int64_t step = 0;
  int64_t index = 0;
  std::string source, reference, translation;
};

struct EventPoint {
  int64_t step = 0;
  double time = 0;
  std::string event, details;
};

// One metrics file.
struct RankMetrics {
  int rank = 0;
  std::vector<TrainPoint> train;     // rising steps
  std::vector<ValidPoint> valid;     // rising steps
  std::vector<SamplePoint> samples;  // the newest
  std::vector<EventPoint> events;    // the newest
  std::string bleu_signature;

  int64_t lines = 0;
  int64_t unreadable = 0;    // lines that are no records: torn, binary, too long
  int64_t superseded = 0;    // times that the run went back to an earlier step, as far as the file shows it
  int64_t out_of_order = 0;  // records of an earlier step and an earlier time, left out

  int64_t last_step() const;
  double last_time() const;  // of the newest record; 0 = none
  double validation_seconds() const;
  double elapsed_seconds() const;  // training time over all starts; 0 = not known
};

// What `tandem prepare` counted.
struct PreparedStats {
  double raw_pairs = kUnknown, train_pairs = kUnknown;
  double source_tokens = kUnknown, target_tokens = kUnknown;
};

struct RunData {
  std::string name;
  std::vector<RankMetrics> ranks;      // never empty, rising ranks
  std::string config;                  // config.toml as text; empty = none
  std::optional<PreparedStats> stats;  // where the prepared data was found

  const RankMetrics& main() const { return ranks.front(); }
};

// `path`: a run directory, or a single metrics file. Fails where neither is there.
RunData read_run(const std::filesystem::path& path);

// A missing file has no records.
RankMetrics read_rank(const std::filesystem::path& path, int rank = 0);

// Nothing where stats.json is missing or not what prepare writes.
std::optional<PreparedStats> read_stats(const std::filesystem::path& prepared);

}  // namespace tandem
