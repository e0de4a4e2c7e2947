// Watches the given runs and all runs in the given directories. Only reads files, so it never disturbs a trainer.
//
// A run is read again if its files changed, else once a minute. Reading takes at most a twentieth of the time: metrics
// are bounded (observe/metrics_writer.h), so that is about every second.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/run_report.h"

namespace tandem::report {

// Run directories and metrics files among and below `paths`, sorted, each once. A directory that is no run is searched
// three levels deep. Fails if a path is missing.
std::vector<std::filesystem::path> find_runs(const std::vector<std::filesystem::path>& paths);

class WatchedRuns {
 public:
  using Read = std::function<RunReport(const std::filesystem::path&)>;

  WatchedRuns(std::vector<std::filesystem::path> paths, Read read);

  // Reads what changed; returns whether anything is new. `now`: seconds on a clock that never goes back.
  bool update(double now);
  std::vector<RunReport> reports() const;  // reports of all runs that could be read

 private:
  struct Watched {
    std::filesystem::path path;
    std::string signature;  // state of its files when it was read
    double read_at = 0, next_read = 0;
    std::vector<RunReport> report;  // one, or none yet
  };
  void find_again(double now);
  bool update(Watched& run, double now);

  std::vector<std::filesystem::path> paths_;
  Read read_;
  double next_search_ = 0;
  std::vector<Watched> runs_;
};

}  // namespace tandem::report
