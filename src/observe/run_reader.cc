#include "observe/run_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "observe/run_reader_line.h"
#include "observe/run_reader_points.h"
#include "observe/segments.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostPoints = 1 << 14;   // of a series, before it is thinned to half
constexpr size_t kPointsOfAll = 1 << 17;  // of all ranks together
constexpr size_t kFewestPoints = 1 << 8;  // that a rank may have
constexpr size_t kMostSamples = 256, kMostEvents = 4096, kMostSetups = 256;
constexpr size_t kLongestLine = 1 << 20;  // bytes
constexpr uint64_t kLargestConfig = 1 << 20;
constexpr size_t kMostRanks = 4096, kMostReasons = 64;
constexpr double kLargestStep = 1e15;

template <class Point>
void merge_neighbours(std::vector<Point>& points, size_t most) {
  if (points.size() < most) {
    return;
  }
  size_t kept = 0;
  for (size_t i = 0; i + 1 < points.size(); i += 2) {
    points[kept++] = merged(points[i], points[i + 1]);
  }
  points.resize(kept);
}

void thin(std::vector<ValidPoint>& points) {
  if (points.size() < kMostPoints) {
    return;
  }
  size_t kept = 0;
  for (size_t i = 1; i < points.size(); i += 2) {
    points[kept++] = points[i];
  }
  points.resize(kept);
}

template <class Point>
void keep_newest(std::vector<Point>& points, size_t most) {
  if (points.size() >= 2 * most) {
    points.erase(points.begin(), points.end() - static_cast<std::ptrdiff_t>(most));
  }
}

template <class Point>
void drop_after(std::vector<Point>& points, int64_t step) {
  std::erase_if(points, [&](const Point& point) { return point.step > step; });
}

template <class Point>
void replace_or_add(std::vector<Point>& points, Point point) {
  if (!points.empty() && points.back().step == point.step) {
    points.back() = std::move(point);
  } else {
    points.push_back(std::move(point));
  }
}

class Reader {
 public:
  Reader(RankMetrics& metrics, size_t most_points) : m_(metrics), most_points_(most_points) {}

  void line(std::string_view text) {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    ++m_.lines;
    if (!line_.parse(text) || line_.step() < 0 || static_cast<double>(line_.step()) > kLargestStep ||
        !std::isfinite(line_.time())) {
      ++m_.unreadable;
      return;
    }
    if (line_.kind() == "probe") {  // from a thread of its own, which may be a step behind
      probe();
      return;
    }
    if (!in_order()) {
      ++m_.out_of_order;
      return;
    }
    last_step_ = line_.step();
    last_time_ = line_.time();
    take();
  }

 private:
  // A step back in steps but not in time is a restart.
  bool in_order() {
    if (line_.step() >= last_step_) {
      return true;
    }
    if (line_.time() < last_time_) {
      return false;
    }
    drop_after(m_.setups, line_.step());
    drop_after(m_.train, line_.step());
    drop_after(m_.valid, line_.step());
    drop_after(m_.samples, line_.step());
    drop_after(m_.events, line_.step());
    drop_after(m_.probes, line_.step());
    ++m_.superseded;
    return true;
  }

  void probe() {
    if (!m_.probes.empty() && !(line_.time() > m_.probes.back().time)) {
      ++m_.out_of_order;
      return;
    }
    m_.probes.push_back(probe_point(line_));
    m_.probes.back().step = std::max(line_.step(), last_step_);
    merge_neighbours(m_.probes, most_points_);
    if (const std::string_view name = line_.text("gpu_name"); !name.empty()) {
      m_.gpu_name = kept_text(name, kLongestName);
      m_.gpu_uuid = kept_text(line_.text("gpu_uuid"), kLongestName);
    }
  }

  void take() {
    const std::string_view kind = line_.kind();
    if (kind == "train") {
      if (!m_.train.empty() && m_.train.back().step == line_.step()) {
        m_.train.pop_back();
      }
      m_.train.push_back(train_point(line_, m_.train.empty() ? 0 : m_.train.back().step));
      merge_neighbours(m_.train, most_points_);
    } else if (kind == "valid") {
      replace_or_add(m_.valid, valid_point(line_));
      thin(m_.valid);
      m_.bleu_signature = kept_text(line_.text("bleu_signature"));
      std::erase_if(m_.samples, [&](const SamplePoint& sample) { return sample.step == line_.step(); });
    } else if (kind == "sample") {
      m_.samples.push_back({line_.step(), static_cast<int64_t>(plausible(line_.number("index", 0))),
                            kept_text(line_.text("source")), kept_text(line_.text("reference")),
                            kept_text(line_.text("translation"))});
      keep_newest(m_.samples, kMostSamples);
    } else if (kind == "event") {
      m_.events.push_back(
          {line_.step(), line_.time(), kept_text(line_.text("event")), kept_text(line_.text("details"))});
      keep_newest(m_.events, kMostEvents);
    } else if (kind == "setup") {
      m_.setups.push_back(setup_point(line_));
      keep_newest(m_.setups, kMostSetups);
    }
  }

  RankMetrics& m_;
  size_t most_points_;
  MetricsLine line_;
  int64_t last_step_ = 0;
  double last_time_ = -std::numeric_limits<double>::infinity();
};

// Calls body(line) for every line, ended or not; returns how many were too long to look at.
template <class Body>
int64_t for_each_line(std::ifstream& in, const Body& body) {
  int64_t too_long = 0;
  bool skipping = false;
  std::string buffer(2 * kLongestLine, '\0');
  size_t held = 0;
  while (in.read(buffer.data() + held, static_cast<std::streamsize>(buffer.size() - held)), in.gcount() > 0) {
    held += static_cast<size_t>(in.gcount());
    std::string_view rest(buffer.data(), held);
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      if (!skipping) {
        body(rest.substr(0, end));
      }
      skipping = false;
      rest.remove_prefix(end + 1);
    }
    if (rest.size() > kLongestLine) {
      too_long += skipping ? 0 : 1;
      skipping = true;
      rest = {};
    }
    held = rest.size();
    std::copy(rest.begin(), rest.end(), buffer.begin());  // to the front of the memory it lies in
  }
  if (held > 0 && !skipping) {
    body(std::string_view(buffer.data(), held));
  }
  return too_long;
}

// Rank of metrics/<rank>.jsonl; nothing for other names.
std::optional<int> rank_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  int rank = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), rank);
  const bool good = path.extension() == ".jsonl" && error == std::errc() && end == stem.data() + stem.size();
  return good && rank >= 0 ? std::optional(rank) : std::nullopt;
}

RankMetrics read_rank_up_to(const fs::path& path, int rank, size_t most_points) {
  RankMetrics metrics;
  metrics.rank = rank;
  Reader reader(metrics, most_points);
  for (std::ifstream& file : open_segments(path)) {
    const int64_t too_long = for_each_line(file, [&](std::string_view line) { reader.line(line); });
    metrics.lines += too_long;
    metrics.unreadable += too_long;
  }
  return metrics;
}

double number_at(const nlohmann::ordered_json& json, const std::string& pointer) {
  const nlohmann::ordered_json::json_pointer place(pointer);
  return json.contains(place) && json.at(place).is_number() ? plausible_or_unknown(json.at(place).get<double>())
                                                            : kUnknown;
}

PreparedSide side_of(const nlohmann::ordered_json& json, const std::string& side) {
  const auto at = [&](const char* place) { return number_at(json, side + place); };
  return {.raw_lines = at("/raw/lines"),
          .raw_bytes = at("/raw/bytes"),
          .cleaned_lines = at("/cleaned/lines"),
          .cleaned_bytes = at("/cleaned/bytes"),
          .cleaned_words = at("/cleaned/words"),
          .encoded_lines = at("/encoded/lines"),
          .encoded_bytes = at("/encoded/bytes"),
          .tokens = at("/encoded/tokens"),
          .vocabulary = at("/vocabulary"),
          .unknown_tokens = at("/unknown_tokens"),
          .unknown_percent = at("/unknown_percent")};
}

std::string small_file(const fs::path& path) {
  std::error_code error;
  const bool readable = fs::is_regular_file(path, error) && fs::file_size(path, error) <= kLargestConfig;
  return readable && !error ? read_file(path, kLargestConfig) : "";
}

}  // namespace

int64_t RankMetrics::last_step() const {
  return std::max({train.empty() ? 0 : train.back().step, valid.empty() ? 0 : valid.back().step,
                   events.empty() ? 0 : events.back().step});
}

double RankMetrics::last_time() const {
  return std::max({train.empty() ? 0 : train.back().time, valid.empty() ? 0 : valid.back().time,
                   events.empty() ? 0 : events.back().time, setups.empty() ? 0 : setups.back().time,
                   probes.empty() ? 0 : probes.back().time});
}

double RankMetrics::validation_seconds() const {
  double windows = 0, validations = 0;
  for (const TrainPoint& point : train) {
    windows += point.validation_seconds;
  }
  for (const ValidPoint& point : valid) {
    validations += std::isnan(point.seconds) ? 0 : point.seconds;
  }
  return std::max(windows, validations);  // no train record counts the last validation; a thinned series misses some
}

double RankMetrics::elapsed_seconds() const {
  double most = 0;
  for (auto point = train.rbegin(); point != train.rend() && most == 0; ++point) {
    most = std::isnan(point->elapsed_seconds) ? 0 : point->elapsed_seconds;
  }
  return !valid.empty() && valid.back().elapsed_seconds > most ? valid.back().elapsed_seconds : most;
}

SetupPoint setup_of(const RankMetrics& metrics) {
  return metrics.setups.empty() ? SetupPoint{} : metrics.setups.back();
}

RankMetrics read_rank(const fs::path& path, int rank) { return read_rank_up_to(path, rank, kMostPoints); }

std::optional<PreparedStats> read_stats(const fs::path& prepared) {
  const nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(small_file(prepared / "stats.json"), nullptr, false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  PreparedStats stats{.raw_pairs = number_at(json, "/pairs/raw"),
                      .train_pairs = number_at(json, "/pairs/train"),
                      .valid_pairs = number_at(json, "/valid_pairs"),
                      .test_pairs = number_at(json, "/test_pairs"),
                      .source_tokens = number_at(json, "/source/encoded/tokens"),
                      .target_tokens = number_at(json, "/target/encoded/tokens"),
                      .source = side_of(json, "/source"),
                      .target = side_of(json, "/target")};
  const nlohmann::ordered_json::json_pointer dropped("/pairs/dropped");
  if (json.contains(dropped) && json.at(dropped).is_object()) {
    for (const auto& [reason, count] : json.at(dropped).items()) {
      if (count.is_number() && stats.dropped.size() < kMostReasons) {
        stats.dropped.emplace_back(kept_text(reason, kLongestName), plausible(count.get<double>()));
      }
    }
  }
  return stats;
}

RunData read_run(const fs::path& path) {
  RunData run;
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    run.name = path.string();
    run.ranks.push_back(read_rank(path));
    return run;
  }
  require(fs::is_directory(path / "metrics", error),
          "{} is no run: it has no folder metrics; give the directory that `tandem train` wrote, or a metrics file",
          path.string());
  run.name = path.string();
  std::vector<std::pair<int, fs::path>> files;
  for (fs::directory_iterator entry(path / "metrics", error), end; !error && entry != end; entry.increment(error)) {
    if (const std::optional<int> rank = rank_of(entry->path()); rank && files.size() < kMostRanks) {
      files.emplace_back(*rank, entry->path());
    }
  }
  require(!error, "cannot read {}: {}", (path / "metrics").string(), error.message());
  std::sort(files.begin(), files.end());
  for (const auto& [rank, file] : files) {
    // Rank 0 has the losses; of the others the clock is wanted.
    const size_t share = std::bit_floor(std::clamp(kPointsOfAll / files.size(), kFewestPoints, kMostPoints));
    run.ranks.push_back(read_rank_up_to(file, rank, rank == 0 ? kMostPoints : share));
  }
  if (run.ranks.empty()) {
    run.ranks.emplace_back();
  }
  run.config = small_file(path / "config.toml");
  return run;
}

}  // namespace tandem
