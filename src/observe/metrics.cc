#include "observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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
  const auto found = std::ranges::find(record.fields, name, &std::pair<std::string, Record::Value>::first);
  return found == record.fields.end() ? nullptr : &found->second;
}

// Reads from the front of what is left.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  void spaces() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) {
      ++at_;
    }
  }
  bool done() const { return at_ == end_; }
  char peek() const { return at_ < end_ ? *at_ : '\0'; }
  bool take(char c) {
    spaces();
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }
  // Plain ASCII without escapes only: the rest is for the complete parser.
  bool plain_string(std::string_view& text) {
    if (!take('"')) {
      return false;
    }
    const char* begin = at_;
    for (; at_ < end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\' || *at_ < 0x20 || *at_ == 0x7f) {  // bytes from 0x80 on are negative
        return false;
      }
    }
    text = {begin, static_cast<size_t>(at_ - begin)};
    return take('"');
  }
  bool number(double& value) {
    const char* digit = peek() == '-' ? at_ + 1 : at_;
    if (digit >= end_ || *digit < '0' || *digit > '9') {
      return false;
    }
    const auto [next, error] = std::from_chars(at_, end_, value);
    at_ = next;
    return error == std::errc();
  }

 private:
  const char* at_;
  const char* end_;
};

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

std::string kept_text(std::string_view text, size_t longest) {
  if (text.size() <= longest) {
    return std::string(text);
  }
  size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

const MetricsLine::Field* MetricsLine::find(std::string_view name) const {
  const auto found = std::ranges::find(fields_, name, &Field::name);
  return found == fields_.end() ? nullptr : &*found;
}

double MetricsLine::number(std::string_view name, double otherwise) const {
  const Field* field = find(name);
  return field != nullptr ? field->number.value_or(otherwise) : otherwise;
}

std::string_view MetricsLine::text(std::string_view name) const {
  const Field* field = find(name);
  return field != nullptr ? field->text : std::string_view();
}

bool MetricsLine::parse(std::string_view line) { return parse_flat(line) ? take_known() : parse_slowly(line); }

bool MetricsLine::parse_flat(std::string_view line) {
  fields_.clear();
  Cursor in(line);
  if (!in.take('{')) {
    return false;
  }
  do {
    Field field;
    in.spaces();
    if (!in.plain_string(field.name) || !in.take(':')) {
      return false;
    }
    in.spaces();
    if (in.peek() == '"') {
      if (!in.plain_string(field.text)) {
        return false;
      }
      field.number = spelled_number(field.text);
    } else if (double value = 0; in.number(value)) {
      field.number = value;
    } else {
      return false;
    }
    fields_.push_back(field);
  } while (in.take(','));
  if (!in.take('}')) {
    return false;
  }
  in.spaces();
  return in.done();
}

bool MetricsLine::take_known() {
  bool has_kind = false, has_step = false, has_time = false;
  for (const Field& field : fields_) {
    if (field.name == "kind" && !field.text.empty()) {
      kind_ = field.text;
      has_kind = true;
    } else if (field.name == "step" && field.number && field.text.empty()) {
      has_step = std::fabs(*field.number) < 0x1p53 && *field.number == std::floor(*field.number);
      step_ = has_step ? static_cast<int64_t>(*field.number) : 0;
    } else if (field.name == "time" && field.number && field.text.empty()) {
      time_ = *field.number;
      has_time = true;
    }
  }
  return has_kind && has_step && has_time;
}

bool MetricsLine::parse_slowly(std::string_view line) {
  fields_.clear();
  record_ = parse_record(std::string(line));
  if (!record_) {
    return false;
  }
  kind_ = record_->kind;
  step_ = record_->step;
  time_ = record_->time;
  for (const auto& [name, value] : record_->fields) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      fields_.push_back({name, spelled_number(*text), *text});
    } else {
      fields_.push_back({name, std::get<double>(value), {}});
    }
  }
  return true;
}

}  // namespace tandem::observe
