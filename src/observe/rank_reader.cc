#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "observe/metrics.h"
#include "observe/run_reader.h"
#include "observe/segments.h"

namespace tandem::observe {

namespace {

constexpr size_t kMostValidations = 1 << 14;  // above this, every second validation is dropped
constexpr size_t kMostSamples = 256, kMostEvents = 4096, kMostSetups = 256;
constexpr size_t kLongestLine = 1 << 20;  // bytes
constexpr double kLargestStep = 1e15;
constexpr double kMostScore = 100.001;  // percent, and what rounding adds

// What is not believable stays as it is in an empty point: 0 or unknown.
template <class Point>
Point point_of(const MetricsLine& line, std::span<const Field<Point>> fields) {
  Point point;
  point.step = line.step();
  point.time = line.time();
  size_t next = 0;  // records name their fields in the table's order
  for (const MetricsLine::Field& found : line.fields()) {
    for (size_t tried = 0; tried < fields.size(); ++tried) {
      const Field<Point>& field = fields[(next + tried) % fields.size()];
      if (field.name == found.name) {
        if (field.member != nullptr && found.number && believable(*found.number, field.most)) {
          point.*field.member = *found.number;
        }
        next += tried + 1;
        break;
      }
    }
  }
  return point;
}

// A stretch after a resume begins between two records, so its own count or rate knows its steps better than the
// difference.
double steps_of(const TrainPoint& point, double rate, int64_t previous) {
  const auto step = static_cast<double>(point.step);
  for (const double measured : {point.steps, std::round(rate * point.step_seconds())}) {
    if (measured >= 1 && measured <= step) {
      return measured;
    }
  }
  return std::max(step - static_cast<double>(previous), 0.0);
}

// `previous`: the step of the train record before this one.
TrainPoint train_point(const MetricsLine& line, int64_t previous) {
  TrainPoint point = point_of<TrainPoint>(line, kTrainFields);
  const double whole = line.number("step_seconds", 0);
  point.other_seconds = believable(whole) ? std::max(whole - point.step_seconds(), 0.0) : 0;
  point.steps = steps_of(point, line.number("steps_per_second", 0), previous);
  for (const Field<TrainPoint>& field : kTrainFields) {
    if (field.merge == Merge::by_steps) {
      const double sum = point.*field.member * point.steps;
      point.*field.member = believable(sum) ? sum : 0;
    }
  }
  const bool has_loss = line.find("nll") != nullptr || line.find("loss") != nullptr;
  const bool finite = std::isfinite(point.nll) && std::isfinite(point.loss);
  point.records = std::max(point.records, 1.0);
  point.unfinite = std::clamp(point.unfinite, has_loss && !finite ? 1.0 : 0.0, point.records);
  return point;
}

ValidPoint valid_point(const MetricsLine& line) {
  ValidPoint point = point_of<ValidPoint>(line, kValidFields);
  if (!(0 <= point.bleu_low && point.bleu_low <= point.bleu && point.bleu <= point.bleu_high &&
        point.bleu_high <= kMostScore)) {
    point.bleu_low = point.bleu_high = kUnknown;
  }
  return point;
}

SetupPoint setup_point(const MetricsLine& line) {
  SetupPoint point = point_of<SetupPoint>(line, kSetupFields);
  point.peak_flops = point.peak_flops > 0 ? point.peak_flops : kUnknown;
  for (const SetupText& text : kSetupTexts) {
    point.*text.member = kept_text(line.text(text.name), kLongestName);
  }
  return point;
}

ProbePoint probe_point(const MetricsLine& line, int64_t step) {
  ProbePoint point = point_of<ProbePoint>(line, kProbeFields);
  point.step = step;
  point.gpu_throttle = kept_text(line.text("gpu_throttle"), kLongestName);
  return point;
}

// Of two neighbouring validations the later one stays.
ValidPoint merged(const ValidPoint&, const ValidPoint& second) { return second; }

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

template <class Point>
void keep_newest(std::vector<Point>& points, size_t most) {
  if (points.size() >= 2 * most) {
    points.erase(points.begin(), points.end() - static_cast<std::ptrdiff_t>(most));
  }
}

// The last record of a step wins.
template <class Point>
void drop_last_of(std::vector<Point>& points, int64_t step) {
  if (!points.empty() && points.back().step == step) {
    points.pop_back();
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
    const auto is_later = [&](const auto& point) { return point.step > line_.step(); };
    const auto drop_later = [&](auto&... points) { (std::erase_if(points, is_later), ...); };
    drop_later(m_.setups, m_.train, m_.valid, m_.samples, m_.events, m_.probes);
    ++m_.superseded;
    return true;
  }

  void probe() {
    if (!m_.probes.empty() && !(line_.time() > m_.probes.back().time)) {
      ++m_.out_of_order;
      return;
    }
    m_.probes.push_back(probe_point(line_, std::max(line_.step(), last_step_)));
    merge_neighbours(m_.probes, most_points_);
    if (const std::string_view name = line_.text("gpu_name"); !name.empty()) {
      m_.gpu_name = kept_text(name, kLongestName);
      m_.gpu_uuid = kept_text(line_.text("gpu_uuid"), kLongestName);
    }
  }

  void take() {
    const std::string_view kind = line_.kind();
    if (kind == "train") {
      drop_last_of(m_.train, line_.step());
      m_.train.push_back(train_point(line_, m_.train.empty() ? 0 : m_.train.back().step));
      merge_neighbours(m_.train, most_points_);
    } else if (kind == "valid") {
      drop_last_of(m_.valid, line_.step());
      m_.valid.push_back(valid_point(line_));
      merge_neighbours(m_.valid, kMostValidations);
      m_.bleu_signature = kept_text(line_.text("bleu_signature"));
      std::erase_if(m_.samples, [&](const SamplePoint& sample) { return sample.step == line_.step(); });
    } else if (kind == "sample") {
      const double index = line_.number("index", 0);
      m_.samples.push_back({line_.step(), believable(index) ? static_cast<int64_t>(index) : 0,
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
  double last_time_ = -kAnyNumber;
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

}  // namespace

RankMetrics read_rank(const std::filesystem::path& path, int rank, size_t most_points) {
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

}  // namespace tandem::observe
