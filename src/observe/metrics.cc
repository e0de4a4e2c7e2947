#include "observe/metrics.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tandem {

namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path with_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  require(!error, "cannot make the directory {}: {}", path.parent_path().string(), error.message());
  return path;
}

Json to_value(double number) {
  if (std::isnan(number)) {
    return "NaN";
  }
  if (std::isinf(number)) {
    return number > 0 ? "Infinity" : "-Infinity";
  }
  // Whole numbers without ".0", as far as a double holds them exactly.
  if (number == std::floor(number) && std::fabs(number) < 0x1p53) {
    return static_cast<int64_t>(number);
  }
  return number;
}

const Record::Value* find(const Record& record, const std::string& name) {
  for (const auto& [key, value] : record.fields) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

// Calls body(line, whether its end is there, offset behind it) for every line until body returns false.
template <class Body>
void for_each_line(const std::filesystem::path& path, const Body& body) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "cannot read {}: check that it is a readable file", path.string());
  std::string line;
  int64_t offset = 0;
  while (std::getline(in, line)) {
    const bool ended = !in.eof();
    offset += static_cast<int64_t>(line.size()) + (ended ? 1 : 0);
    if (!body(line, ended, offset)) {
      return;
    }
  }
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> Record::number(const std::string& name) const {
  const Value* value = find(*this, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* number = std::get_if<double>(value)) {
    return *number;
  }
  const std::string& spelled = std::get<std::string>(*value);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (spelled == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return spelled == "Infinity"    ? std::optional(kInfinity)
         : spelled == "-Infinity" ? std::optional(-kInfinity)
                                  : std::nullopt;
}

const std::string* Record::text(const std::string& name) const {
  const Value* value = find(*this, name);
  return value == nullptr ? nullptr : std::get_if<std::string>(value);
}

std::string to_json(const Record& record) {
  Json object;
  object["kind"] = record.kind;
  object["step"] = record.step;
  object["time"] = record.time;
  for (const auto& [name, value] : record.fields) {
    if (const auto* number = std::get_if<double>(&value)) {
      object[name] = to_value(*number);
    } else {
      object[name] = std::get<std::string>(value);
    }
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Record> parse_record(const std::string& line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) {
    return std::nullopt;
  }
  const auto kind = object.find("kind"), step = object.find("step"), time = object.find("time");
  if (kind == object.end() || !kind->is_string() || step == object.end() || !step->is_number_integer() ||
      time == object.end() || !time->is_number()) {
    return std::nullopt;
  }
  Record record{.kind = kind->get<std::string>(), .step = step->get<int64_t>(), .time = time->get<double>()};
  for (const auto& [name, value] : object.items()) {
    if (name == "kind" || name == "step" || name == "time") {
      continue;
    }
    if (value.is_number()) {
      record.add(name, value.get<double>());
    } else if (value.is_string()) {
      record.add(name, value.get<std::string>());
    }
  }
  return record;
}

Metrics read_metrics(const std::filesystem::path& path) {
  Metrics metrics;
  if (!std::filesystem::exists(path)) {
    return metrics;
  }
  for_each_line(path, [&](const std::string& line, bool, int64_t) {
    if (std::optional<Record> record = parse_record(line)) {
      metrics.records.push_back(std::move(*record));
    } else {
      ++metrics.skipped;
    }
    return true;
  });
  return metrics;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, int64_t last) : file_(with_directory(path)) {
  cut_after(last);
}

void MetricsWriter::cut_after(int64_t last) {
  int64_t keep = 0;
  for_each_line(file_.path(), [&](const std::string& line, bool ended, int64_t offset) {
    const std::optional<Record> record = parse_record(line);
    if (record && record->step > last) {
      return false;
    }
    keep = record && ended ? offset : keep;
    return true;
  });
  file_.truncate(keep);
}

}  // namespace tandem
