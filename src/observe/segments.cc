#include "observe/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"

namespace tandem::observe {

namespace fs = std::filesystem;

namespace {

constexpr int kTries = 1000;     // number of tries if the listing changes while files are opened
constexpr int kTriesAtOnce = 5;  // later tries wait before

// Parses "000001-000008" between the active file's stem and extension.
std::optional<Segment> parse_name(const fs::path& path, const fs::path& active) {
  const std::string name = path.filename().string(), begin = active.stem().string() + ".",
                    end = active.extension().string();
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) {
    return std::nullopt;
  }
  const char* at = name.data() + begin.size();
  const char* stop = name.data() + name.size() - end.size();
  Segment segment{.path = path};
  const auto [dash, first_error] = std::from_chars(at, stop, segment.first);
  if (first_error != std::errc() || dash == stop || *dash != '-') {
    return std::nullopt;
  }
  const auto [last, last_error] = std::from_chars(dash + 1, stop, segment.last);
  const bool good = last_error == std::errc() && last == stop && segment.first >= 1 && segment.last >= segment.first &&
                    segment.last < INT64_MAX / 2;
  return good ? std::optional(std::move(segment)) : std::nullopt;
}

}  // namespace

fs::path segment_path(const fs::path& active, int64_t first, int64_t last) {
  return active.parent_path() /
         fmt::format("{}.{:06}-{:06}{}", active.stem().string(), first, last, active.extension().string());
}

fs::path partial_path(const fs::path& active) {
  return active.parent_path() / fmt::format(".{}.partial", active.filename().string());
}

Segments list_segments(const fs::path& active) {
  std::vector<Segment> found;
  Segments segments;
  std::error_code error;
  const fs::path directory = active.parent_path().empty() ? "." : active.parent_path();
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (std::optional<Segment> segment = parse_name(entry->path(), active)) {
      found.push_back(std::move(*segment));
    } else if (entry->path().filename() == partial_path(active).filename()) {
      segments.leftovers.push_back(entry->path());
    }
  }
  // Among segments that begin alike the widest comes first, so that later ones lie within or behind it.
  std::ranges::sort(found, {}, [](const Segment& segment) { return std::pair(segment.first, -segment.last); });
  for (Segment& segment : found) {
    if (!segments.closed.empty() && segment.first <= segments.closed.back().last) {
      segments.leftovers.push_back(segment.path);
    } else {
      segments.closed.push_back(std::move(segment));
    }
  }
  return segments;
}

std::vector<std::ifstream> open_segments(const fs::path& active) {
  for (int tried = 1;; ++tried) {
    const auto closed_paths = [&] {
      std::vector<fs::path> paths;
      for (const Segment& segment : list_segments(active).closed) {
        paths.push_back(segment.path);
      }
      return paths;
    };
    const std::vector<fs::path> before = closed_paths();
    std::vector<fs::path> paths = before;
    std::error_code error;
    if (fs::exists(active, error)) {
      paths.push_back(active);
    }
    std::vector<std::ifstream> files;
    std::string failed;
    for (const fs::path& path : paths) {
      const fs::file_status status = fs::status(path, error);  // once: the trainer may rename it between two calls
      if (fs::exists(status) && !fs::is_regular_file(status)) {
        fail("cannot read {}: it is no plain file", path.string());
      }
      files.emplace_back(path, std::ios::binary);
      failed = files.back().is_open() ? failed : path.string();
    }
    const bool unchanged = before == closed_paths();
    require(failed.empty() || (!unchanged && tried < kTries), "cannot read {}: check that it is a readable file",
            failed);
    if (failed.empty() && (unchanged || tried >= kTries)) {
      return files;
    }
    if (tried > kTriesAtOnce) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace tandem::observe
