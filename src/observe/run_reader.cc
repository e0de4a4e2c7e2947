#include "observe/run_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "observe/run_reader_line.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostPoints = 1 << 14;  // of a series, before it is thinned to half
constexpr size_t kMostSamples = 256, kMostEvents = 4096;
constexpr size_t kLongestLine = 1 << 20;  // bytes
constexpr size_t kLongestText = 1 << 12;  // bytes of a sample or event kept
constexpr uint64_t kLargestConfig = 1 << 20;
constexpr size_t kMostRanks = 4096;
constexpr double kLargest = 1e15;  // of anything that is summed

struct TrainField {
  std::string_view name;
  double TrainPoint::*value;
};
constexpr TrainField kTrainFields[] = {
    {"loss", &TrainPoint::loss},
    {"nll", &TrainPoint::nll},
    {"accuracy", &TrainPoint::accuracy},
    {"learning_rate", &TrainPoint::learning_rate},
    {"gradient_norm", &TrainPoint::gradient_norm},
    {"epoch", &TrainPoint::epoch},
    {"pairs", &TrainPoint::pairs},
    {"source_tokens", &TrainPoint::source_tokens},
    {"target_tokens", &TrainPoint::target_tokens},
    {"compute_seconds", &TrainPoint::compute_seconds},
    {"data_seconds", &TrainPoint::data_seconds},
    {"validation_seconds", &TrainPoint::validation_seconds},
    {"checkpoint_seconds", &TrainPoint::checkpoint_seconds},
    {"skipped_steps", &TrainPoint::skipped_steps},
    {"elapsed_seconds", &TrainPoint::elapsed_seconds},
    {"peak_memory_bytes", &TrainPoint::peak_memory_bytes},
};
constexpr double TrainPoint::*kMeansInFile[] = {&TrainPoint::pairs, &TrainPoint::source_tokens,
                                                &TrainPoint::target_tokens};
constexpr double TrainPoint::*kSums[] = {&TrainPoint::pairs,
                                         &TrainPoint::source_tokens,
                                         &TrainPoint::target_tokens,
                                         &TrainPoint::compute_seconds,
                                         &TrainPoint::data_seconds,
                                         &TrainPoint::validation_seconds,
                                         &TrainPoint::checkpoint_seconds,
                                         &TrainPoint::skipped_steps};

double plausible(double value) { return value >= 0 && value <= kLargest ? value : 0; }
double plausible_or_unknown(double value) { return value >= 0 && value <= kLargest ? value : kUnknown; }

TrainPoint train_point(const MetricsLine& line, int64_t previous) {
  TrainPoint point;
  point.step = line.step();
  point.time = line.time();
  size_t next = 0;  // records name their fields in the table's order
  for (const MetricsLine::Field& field : line.fields()) {
    for (size_t tried = 0; tried < std::size(kTrainFields); ++tried) {
      const TrainField& known = kTrainFields[(next + tried) % std::size(kTrainFields)];
      if (known.name == field.name) {
        point.*known.value = field.number.value_or(kUnknown);
        next += tried + 1;
        break;
      }
    }
  }
  for (double TrainPoint::*sum : kSums) {
    point.*sum = plausible(point.*sum);
  }
  point.elapsed_seconds = plausible_or_unknown(point.elapsed_seconds);
  // A stretch after a resume begins between two records, so its own rate knows its steps better than the difference.
  const double measured = std::round(plausible(line.number("steps_per_second", 0)) * point.step_seconds());
  const auto step = static_cast<double>(point.step);
  point.steps = measured >= 1 && measured <= step ? measured : std::max(step - static_cast<double>(previous), 0.0);
  for (double TrainPoint::*mean : kMeansInFile) {
    point.*mean = plausible(point.*mean * point.steps);
  }
  point.unfinite = std::isfinite(point.nll) && std::isfinite(point.loss) ? 0 : 1;
  return point;
}

// Mean by steps of what is finite.
double merged(double a, double weight_a, double b, double weight_b) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return std::isfinite(a) ? a : b;
  }
  const double weight = weight_a + weight_b;
  return weight > 0 ? a * (weight_a / weight) + b * (weight_b / weight) : b;
}

TrainPoint merged(const TrainPoint& first, const TrainPoint& second) {
  TrainPoint both = second;
  for (double TrainPoint::*mean : {&TrainPoint::loss, &TrainPoint::nll, &TrainPoint::accuracy}) {
    both.*mean = merged(first.*mean, first.steps, second.*mean, second.steps);
  }
  for (double TrainPoint::*sum : kSums) {
    both.*sum += first.*sum;
  }
  both.steps += first.steps;
  both.records += first.records;
  both.unfinite += first.unfinite;
  return both;
}

void thin(std::vector<TrainPoint>& points) {
  if (points.size() < kMostPoints) {
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

ValidPoint valid_point(const MetricsLine& line) {
  ValidPoint point{.step = line.step(), .time = line.time()};
  point.nll = line.number("nll", kUnknown);
  point.train_nll = line.number("train_nll", kUnknown);
  point.accuracy = line.number("accuracy", kUnknown);
  point.bleu = line.number("bleu", kUnknown);
  point.chrf = line.number("chrf", kUnknown);
  point.seconds = plausible_or_unknown(line.number("seconds", kUnknown));
  point.elapsed_seconds = plausible_or_unknown(line.number("elapsed_seconds", kUnknown));
  return point;
}

// Cut to what a report shows, between two characters.
std::string kept_text(std::string_view text) {
  if (text.size() <= kLongestText) {
    return std::string(text);
  }
  size_t end = kLongestText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
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
  explicit Reader(RankMetrics& metrics) : m_(metrics) {}

  void line(std::string_view text) {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    ++m_.lines;
    if (!line_.parse(text) || line_.step() < 0 || static_cast<double>(line_.step()) > kLargest ||
        !std::isfinite(line_.time())) {
      ++m_.unreadable;
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
    drop_after(m_.train, line_.step());
    drop_after(m_.valid, line_.step());
    drop_after(m_.samples, line_.step());
    drop_after(m_.events, line_.step());
    ++m_.superseded;
    return true;
  }

  void take() {
    const std::string_view kind = line_.kind();
    if (kind == "train") {
      if (!m_.train.empty() && m_.train.back().step == line_.step()) {
        m_.train.pop_back();
      }
      m_.train.push_back(train_point(line_, m_.train.empty() ? 0 : m_.train.back().step));
      thin(m_.train);
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
    }
  }

  RankMetrics& m_;
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

double number_at(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer place(pointer);
  return json.contains(place) && json.at(place).is_number() ? plausible_or_unknown(json.at(place).get<double>())
                                                            : kUnknown;
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
                   events.empty() ? 0 : events.back().time});
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

RankMetrics read_rank(const fs::path& path, int rank) {
  RankMetrics metrics;
  metrics.rank = rank;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return metrics;
  }
  require(fs::is_regular_file(path, error), "cannot read {}: it is no plain file", path.string());
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "cannot read {}: check that it is a readable file", path.string());
  Reader reader(metrics);
  const int64_t too_long = for_each_line(in, [&](std::string_view line) { reader.line(line); });
  metrics.lines += too_long;
  metrics.unreadable += too_long;
  return metrics;
}

std::optional<PreparedStats> read_stats(const fs::path& prepared) {
  const nlohmann::json json = nlohmann::json::parse(small_file(prepared / "stats.json"), nullptr, false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  return PreparedStats{.raw_pairs = number_at(json, "/pairs/raw"),
                       .train_pairs = number_at(json, "/pairs/train"),
                       .source_tokens = number_at(json, "/source/encoded/tokens"),
                       .target_tokens = number_at(json, "/target/encoded/tokens")};
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
    run.ranks.push_back(read_rank(file, rank));
  }
  if (run.ranks.empty()) {
    run.ranks.emplace_back();
  }
  run.config = small_file(path / "config.toml");
  return run;
}

}  // namespace tandem
