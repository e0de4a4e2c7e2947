#include "observe/fields.h"

#include <algorithm>
#include <cmath>

namespace tandem::observe {

namespace {

// The weights of a record's means.
struct Extent {
  double tokens = 0, steps = 0, seconds = 0;

  double of(Merge rule) const { return rule == Merge::by_tokens ? tokens : rule == Merge::by_steps ? steps : seconds; }
};

double merged_value(Merge rule, double a, const Extent& first, double b, const Extent& second) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return std::isfinite(a) ? a : b;
  }
  if (rule == Merge::last || rule == Merge::most) {
    return rule == Merge::last ? b : std::max(a, b);
  }
  if (rule == Merge::sum) {
    return a + b;
  }
  const double wa = first.of(rule), wb = second.of(rule);
  return wa + wb > 0 ? a * (wa / (wa + wb)) + b * (wb / (wa + wb)) : b;
}

template <class Point>
Point merged_points(std::span<const Field<Point>> fields, const Point& first, const Extent& a, const Point& second,
                    const Extent& b) {
  Point both = second;
  for (const Field<Point>& field : fields) {
    if (field.member != nullptr) {
      const Merge rule = field.merge == Merge::by_steps ? Merge::sum : field.merge;  // the points hold the sum
      both.*field.member = merged_value(rule, first.*field.member, a, second.*field.member, b);
    }
  }
  return both;
}

Extent extent_of(const TrainPoint& point) { return {loss_weight(point), point.steps, point.step_seconds()}; }
Extent extent_of(const ProbePoint& point) { return {.seconds = point.seconds}; }

double known(const Record& record, const std::string& name, double otherwise) {
  const double value = record.number(name).value_or(otherwise);
  return std::isfinite(value) && value >= 0 ? value : otherwise;
}

Extent extent_of(const Record& record) {
  if (record.kind == "probe") {
    return {.seconds = known(record, "seconds", 1)};
  }
  const double steps = known(record, "steps", 1), tokens = steps * known(record, "target_tokens", 0);
  return {tokens > 0 ? tokens : steps, steps, known(record, "step_seconds", steps)};
}

// Adds the counts that train records of earlier versions do not have.
Record counted(Record record) {
  if (record.kind != "train") {
    return record;
  }
  if (!record.number("step_seconds")) {
    record.add("step_seconds", known(record, "compute_seconds", 0) + known(record, "communication_seconds", 0) +
                                   known(record, "data_seconds", 0));
  }
  if (!record.number("steps")) {
    record.add("steps", std::round(known(record, "steps_per_second", 0) * known(record, "step_seconds", 0)));
  }
  if (!record.number("records")) {
    const auto bad = [&](const char* name) { return !std::isfinite(record.number(name).value_or(0)); };
    record.add("records", 1).add("unfinite", bad("loss") || bad("nll") ? 1 : 0);
  }
  return record;
}

template <class Point>
Merge rule_in(std::span<const Field<Point>> fields, std::string_view name) {
  const auto field = std::ranges::find(fields, name, &Field<Point>::name);
  const bool is_known = field != fields.end();
  return is_known ? field->merge : name.ends_with("_seconds") ? Merge::sum : Merge::last;
}

}  // namespace

Merge merge_rule(std::string_view kind, std::string_view name) {
  if (kind != "probe") {
    return rule_in<TrainPoint>(kTrainFields, name);
  }
  const bool of_an_interface = name.starts_with("net.");
  return rule_in<ProbePoint>(
      kProbeFields, of_an_interface ? "network_" + std::string(name.substr(name.rfind('.') + 1)) : std::string(name));
}

TrainPoint merged(const TrainPoint& first, const TrainPoint& second) {
  TrainPoint both = merged_points<TrainPoint>(kTrainFields, first, extent_of(first), second, extent_of(second));
  both.other_seconds += first.other_seconds;
  return both;
}

ProbePoint merged(const ProbePoint& first, const ProbePoint& second) {
  return merged_points<ProbePoint>(kProbeFields, first, extent_of(first), second, extent_of(second));
}

Record merged(const Record& first_record, const Record& second_record) {
  const Record first = counted(first_record), second = counted(second_record);
  const Extent of_first = extent_of(first), of_second = extent_of(second);
  Record both{.kind = second.kind, .step = second.step, .time = second.time};
  for (const auto& [name, value] : second.fields) {
    const std::optional<double> a = first.number(name), b = second.number(name);
    if (a && b) {
      both.add(name, merged_value(merge_rule(second.kind, name), *a, of_first, *b, of_second));
    } else {
      both.fields.emplace_back(name, value);
    }
  }
  for (const auto& [name, value] : first.fields) {  // fields of the first only, such as names recorded once
    const bool of_a_moment = std::holds_alternative<std::string>(value) && name == "gpu_throttle";
    if (!of_a_moment && !second.number(name) && second.text(name) == nullptr) {
      both.fields.emplace_back(name, value);
    }
  }
  return both;
}

TrainPoint total(std::span<const TrainPoint> points) {
  TrainPoint sum;
  sum.records = 0;
  for (const TrainPoint& point : points) {
    sum = merged(sum, point);
  }
  return sum;
}

Record train_record(const TrainPoint& point, bool first_rank) {
  Record record{.kind = "train", .step = point.step};
  for (const Field<TrainPoint>& field : kTrainFields) {
    if (field.writer == WrittenBy::every_rank || (field.writer == WrittenBy::first_rank && first_rank)) {
      const double value = field.of(point);
      record.add(std::string(field.name), field.merge == Merge::by_steps ? value / point.steps : value);
    }
  }
  return record;
}

}  // namespace tandem::observe
