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
constexpr double kMostScore = 100.001;  // percent, with a margin for rounding

// A value that is not believable stays as in an empty point: 0 or unknown.
template <class Point>
Point point_of(const Record& record, std::span<const Field<Point>> fields) {
  Point point;
  point.step = record.step;
  point.time = record.time;
  for (const auto& [name, value] : record.fields) {
    const auto field = std::ranges::find(fields, name, &Field<Point>::name);
    const std::optional<double> number = number_in(value);
    if (field != fields.end() && field->member != nullptr && number && believable(*number, field->most)) {
      point.*(field->member) = *number;
    }
  }
  return point;
}

// The text as a report shows it; empty if there is none.
std::string text_in(const Record& record, std::string_view name, size_t longest = kLongestText) {
  const std::string* text = record.text(name);
  return text == nullptr ? "" : kept_text(*text, longest);
}

// Steps of a record. After a resume it begins between two records, so its own count or rate is better than the
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
TrainPoint train_point(const Record& record, int64_t previous) {
  TrainPoint point = point_of<TrainPoint>(record, kTrainFields);
  const double whole = record.number("step_seconds").value_or(0);
  point.other_seconds = believable(whole) ? std::max(whole - point.step_seconds(), 0.0) : 0;
  point.steps = steps_of(point, record.number("steps_per_second").value_or(0), previous);
  for (const Field<TrainPoint>& field : kTrainFields) {
    if (field.merge == Merge::by_steps) {
      const double sum = point.*field.member * point.steps;
      point.*field.member = believable(sum) ? sum : 0;
    }
  }
  const bool has_loss = std::ranges::any_of(
      record.fields, [](const auto& field) { return field.first == "nll" || field.first == "loss"; });
  const bool finite = std::isfinite(point.nll) && std::isfinite(point.loss);
  point.records = std::max(point.records, 1.0);
  point.unfinite = std::clamp(point.unfinite, has_loss && !finite ? 1.0 : 0.0, point.records);
  return point;
}

ValidPoint valid_point(const Record& record) {
  ValidPoint point = point_of<ValidPoint>(record, kValidFields);
  if (!(0 <= point.bleu_low && point.bleu_low <= point.bleu && point.bleu <= point.bleu_high &&
        point.bleu_high <= kMostScore)) {
    point.bleu_low = point.bleu_high = kUnknown;
  }
  return point;
}

SetupPoint setup_point(const Record& record) {
  SetupPoint point = point_of<SetupPoint>(record, kSetupFields);
  point.peak_flops = point.peak_flops > 0 ? point.peak_flops : kUnknown;
  for (const SetupText& text : kSetupTexts) {
    point.*text.member = text_in(record, text.name, kLongestName);
  }
  return point;
}

ProbePoint probe_point(const Record& record, int64_t step) {
  ProbePoint point = point_of<ProbePoint>(record, kProbeFields);
  point.step = step;
  point.gpu_throttle = text_in(record, "gpu_throttle", kLongestName);
  return point;
}

// Keeps the later of two neighbouring validations.
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
    const std::optional<Record> record = parse_record(text);
    if (!record || record->step < 0 || static_cast<double>(record->step) > kLargestStep ||
        !std::isfinite(record->time)) {
      ++m_.unreadable;
    } else if (record->kind == "probe") {  // written by another thread, which may be a step behind
      probe(*record);
    } else if (!in_order(*record)) {
      ++m_.out_of_order;
    } else {
      last_step_ = record->step;
      last_time_ = record->time;
      take(*record);
    }
  }

 private:
  // A record that is earlier in steps but not in time is a restart, which removes later points.
  bool in_order(const Record& record) {
    if (record.step >= last_step_) {
      return true;
    }
    if (record.time < last_time_) {
      return false;
    }
    const auto is_later = [&](const auto& point) { return point.step > record.step; };
    const auto drop_later = [&](auto&... points) { (std::erase_if(points, is_later), ...); };
    drop_later(m_.setups, m_.train, m_.valid, m_.samples, m_.events, m_.probes);
    ++m_.superseded;
    return true;
  }

  void probe(const Record& record) {
    if (!m_.probes.empty() && !(record.time > m_.probes.back().time)) {
      ++m_.out_of_order;
      return;
    }
    m_.probes.push_back(probe_point(record, std::max(record.step, last_step_)));
    merge_neighbours(m_.probes, most_points_);
    if (std::string name = text_in(record, "gpu_name", kLongestName); !name.empty()) {
      m_.gpu_name = std::move(name);
    }
  }

  void take(const Record& record) {
    const std::string& kind = record.kind;
    if (kind == "train") {
      drop_last_of(m_.train, record.step);
      m_.train.push_back(train_point(record, m_.train.empty() ? 0 : m_.train.back().step));
      merge_neighbours(m_.train, most_points_);
    } else if (kind == "valid") {
      drop_last_of(m_.valid, record.step);
      m_.valid.push_back(valid_point(record));
      merge_neighbours(m_.valid, kMostValidations);
      m_.bleu_signature = text_in(record, "bleu_signature");
      std::erase_if(m_.samples, [&](const SamplePoint& sample) { return sample.step == record.step; });
    } else if (kind == "sample") {
      const double index = record.number("index").value_or(0);
      m_.samples.push_back({record.step, believable(index) ? static_cast<int64_t>(index) : 0, text_in(record, "source"),
                            text_in(record, "reference"), text_in(record, "translation")});
      keep_newest(m_.samples, kMostSamples);
    } else if (kind == "event") {
      m_.events.push_back({record.step, record.time, text_in(record, "event"), text_in(record, "details")});
      keep_newest(m_.events, kMostEvents);
    } else if (kind == "setup") {
      m_.setups.push_back(setup_point(record));
      keep_newest(m_.setups, kMostSetups);
    }
  }

  RankMetrics& m_;
  size_t most_points_;
  int64_t last_step_ = 0;
  double last_time_ = -kAnyNumber;
};

// Calls body(line) for every line, ended or not; returns how many were skipped as too long.
template <class Body>
int64_t for_each_line(std::ifstream& in, const Body& body) {
  int64_t too_long = 0;
  std::string buffer(kLongestLine + 1, '\0');
  while (in.getline(buffer.data(), std::ssize(buffer)), in.gcount() > 0) {
    if (in.fail()) {
      ++too_long;
      in.clear();
      in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    } else {
      body(std::string_view(buffer.data(), static_cast<size_t>(in.gcount() - (in.eof() ? 0 : 1))));
    }
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
