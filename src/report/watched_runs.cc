#include "report/watched_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/log.h"
#include "core/stopwatch.h"

namespace tandem::report {

namespace fs = std::filesystem;

namespace {

constexpr int kDepth = 3;                // depth of the search for runs
constexpr size_t kMostEntries = 20'000;  // directory entries that one search looks at
constexpr size_t kMostRuns = 100;
constexpr double kSearchSeconds = 10;
constexpr double kJudgeSeconds = 60;    // after this time an unchanged run is judged again
constexpr double kLargestShare = 0.05;  // share of the time for reading

void search(const fs::path& directory, int depth, size_t& entries, std::set<fs::path>& found) {
  std::error_code error;
  if (fs::is_directory(directory / "metrics", error)) {
    found.insert(directory);
    return;
  }
  fs::directory_iterator entry(directory, fs::directory_options::skip_permission_denied, error), end;
  for (; !error && entry != end && entries < kMostEntries; entry.increment(error)) {
    ++entries;
    std::error_code none;
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (depth > 0 && !hidden && entry->is_directory(none) && !entry->is_symlink(none)) {
      search(entry->path(), depth - 1, entries, found);
    }
  }
}

std::string signature_of(const fs::path& run) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_regular_file(run, error)) {
    files.push_back(run);
  } else {
    for (fs::directory_iterator entry(run / "metrics", error), end; !error && entry != end; entry.increment(error)) {
      files.push_back(entry->path());
    }
    files.push_back(run / "config.toml");
    files.push_back(run / "checkpoints");
  }
  std::sort(files.begin(), files.end());
  std::string signature;
  for (const fs::path& file : files) {
    const uintmax_t size = fs::file_size(file, error);
    const auto time = fs::last_write_time(file, error).time_since_epoch().count();
    signature += fmt::format("{} {} {}\n", file.filename().string(), size, time);
  }
  return signature;
}

}  // namespace

std::vector<fs::path> find_runs(const std::vector<fs::path>& paths) {
  std::set<fs::path> found;
  size_t entries = 0;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      found.insert(path);
      continue;
    }
    require(fs::is_directory(path, error), "{} is missing: give run directories, or directories that hold runs",
            path.string());
    search(path, kDepth, entries, found);
  }
  return {found.begin(), found.end()};
}

WatchedRuns::WatchedRuns(std::vector<fs::path> paths, Read read) : paths_(std::move(paths)), read_(std::move(read)) {
  find_runs(paths_);  // fails now if a path is missing
}

void WatchedRuns::find_again(double now) {
  next_search_ = now + kSearchSeconds;
  std::vector<fs::path> found;
  try {
    found = find_runs(paths_);
  } catch (const Error&) {  // a path was moved meanwhile: what was read stays
    return;
  }
  for (const fs::path& path : found) {
    const bool known = std::ranges::any_of(runs_, [&](const Watched& run) { return run.path == path; });
    if (!known && runs_.size() < kMostRuns) {
      runs_.push_back({.path = path, .signature = "", .read_at = 0, .next_read = now, .report = {}});
      if (runs_.size() == kMostRuns) {
        log::warning("only {} runs are watched; name fewer, or one", kMostRuns);
      }
    }
  }
  std::ranges::sort(runs_, {}, &Watched::path);
}

bool WatchedRuns::update(Watched& run, double now) {
  if (now < run.next_read) {
    return false;
  }
  std::string signature = signature_of(run.path);
  if (signature == run.signature && now - run.read_at < kJudgeSeconds) {
    return false;
  }
  const Stopwatch reading;
  try {
    run.report.assign(1, read_(run.path));
  } catch (const Error& error) {
    if (run.signature.empty()) {
      log::warning("{}", error.what());
    }
  }
  run.signature = std::move(signature);
  run.read_at = now;
  run.next_read = now + reading.seconds() / kLargestShare;
  return true;
}

bool WatchedRuns::update(double now) {
  if (now >= next_search_) {
    find_again(now);
  }
  bool changed = false;
  for (Watched& run : runs_) {
    changed = update(run, now) || changed;
  }
  return changed;
}

std::vector<RunReport> WatchedRuns::reports() const {
  std::vector<RunReport> reports;
  for (const Watched& run : runs_) {
    reports.insert(reports.end(), run.report.begin(), run.report.end());
  }
  return reports;
}

}  // namespace tandem::report
