#include "observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace tandem::observe {

namespace {

using Json = nlohmann::ordered_json;

// Whole numbers without ".0", as far as a double holds them exactly; the shortest text that reads as the same number.
void append_number(std::string& line, double number) {
  if (std::isnan(number)) {
    line += "\"NaN\"";
  } else if (std::isinf(number)) {
    line += number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else if (number == std::floor(number) && std::fabs(number) < 0x1p53 && !(number == 0 && std::signbit(number))) {
    fmt::format_to(std::back_inserter(line), "{}", static_cast<int64_t>(number));
  } else {
    fmt::format_to(std::back_inserter(line), "{}", number);
  }
}

void append_text(std::string& line, const std::string& text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {
    line.append("\"").append(text).append("\"");
  } else {
    line += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

const Record::Value* find(const Record& record, const std::string& name) {
  for (const auto& [key, value] : record.fields) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> spelled_number(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return text == "NaN"         ? std::optional(std::numeric_limits<double>::quiet_NaN())
         : text == "Infinity"  ? std::optional(kInfinity)
         : text == "-Infinity" ? std::optional(-kInfinity)
                               : std::nullopt;
}

std::optional<double> Record::number(const std::string& name) const {
  const Value* value = find(*this, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto* number = std::get_if<double>(value)) {
    return *number;
  }
  return spelled_number(std::get<std::string>(*value));
}

const std::string* Record::text(const std::string& name) const {
  const Value* value = find(*this, name);
  return value == nullptr ? nullptr : std::get_if<std::string>(value);
}

std::string to_json(const Record& record) {
  std::string line = "{\"kind\":";
  append_text(line, record.kind);
  fmt::format_to(std::back_inserter(line), ",\"step\":{},\"time\":", record.step);
  append_number(line, record.time);
  for (const auto& [name, value] : record.fields) {
    line += ',';
    append_text(line, name);
    line += ':';
    if (const auto* number = std::get_if<double>(&value)) {
      append_number(line, *number);
    } else {
      append_text(line, std::get<std::string>(value));
    }
  }
  return line + '}';
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

}  // namespace tandem::observe
