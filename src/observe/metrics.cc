#include "observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/parse.h"

namespace tandem::observe {

namespace {

using Json = nlohmann::ordered_json;

// Whether a number is whole and below 2^53, up to which doubles hold whole numbers exactly.
bool is_whole(double number) { return number == std::floor(number) && std::fabs(number) < 0x1p53; }

// Appends the shortest text that reads as the same number; whole numbers have no ".0".
void append_number(std::string& line, double number) {
  if (std::isnan(number)) {
    line += "\"NaN\"";
  } else if (std::isinf(number)) {
    line += number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else if (is_whole(number) && !(number == 0 && std::signbit(number))) {
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

using Fields = std::vector<std::pair<std::string, Record::Value>>;

const Record::Value* find(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Fields::value_type::first);
  return found == fields.end() ? nullptr : &found->second;
}

// Parses a line from front to back.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  void spaces() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) {
      ++at_;
    }
  }
  bool done() {
    spaces();
    return at_ == end_;
  }
  char peek() const { return at_ < end_ ? *at_ : '\0'; }
  bool take(char c) {
    spaces();
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }
  // Accepts only plain ASCII without escapes; the complete parser reads the rest.
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

// The numbers and plain texts of a flat object; nothing for any other line.
std::optional<Fields> parse_flat(std::string_view line) {
  Fields fields;
  fields.reserve(40);  // a train record has about that many
  Cursor in(line);
  if (!in.take('{')) {
    return std::nullopt;
  }
  do {
    std::string_view name, text;
    double number = 0;
    if (!in.plain_string(name) || !in.take(':')) {
      return std::nullopt;
    }
    if (in.plain_string(text)) {
      fields.emplace_back(name, std::string(text));
    } else if (in.number(number)) {
      fields.emplace_back(name, number);
    } else {
      return std::nullopt;
    }
  } while (in.take(','));
  return in.take('}') && in.done() ? std::optional(std::move(fields)) : std::nullopt;
}

// The numbers and texts of any object; none if the line is not a JSON object.
Fields parse_json(std::string_view line) {
  Fields fields;
  const Json object = is_shallow_json(line) ? Json::parse(line, nullptr, false) : Json();
  if (object.is_object()) {
    for (const auto& [name, value] : object.items()) {
      if (value.is_number()) {
        fields.emplace_back(name, value.get<double>());
      } else if (value.is_string()) {
        fields.emplace_back(name, value.get<std::string>());
      }
    }
  }
  return fields;
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> number_in(const Record::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    return *number;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string& text = std::get<std::string>(value);
  return text == "NaN"         ? std::optional(std::numeric_limits<double>::quiet_NaN())
         : text == "Infinity"  ? std::optional(kInfinity)
         : text == "-Infinity" ? std::optional(-kInfinity)
                               : std::nullopt;
}

std::optional<double> Record::number(std::string_view name) const {
  const Value* value = find(fields, name);
  return value == nullptr ? std::nullopt : number_in(*value);
}

const std::string* Record::text(std::string_view name) const { return std::get_if<std::string>(find(fields, name)); }

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

std::optional<Record> parse_record(std::string_view line) {
  std::optional<Fields> flat = parse_flat(line);
  Record record{.kind = "", .time = 0, .fields = flat ? std::move(*flat) : parse_json(line)};
  const std::string* kind = record.text("kind");
  const double* step = std::get_if<double>(find(record.fields, "step"));
  const double* time = std::get_if<double>(find(record.fields, "time"));
  if (kind == nullptr || kind->empty() || step == nullptr || !is_whole(*step) || time == nullptr) {
    return std::nullopt;
  }
  record.kind = *kind, record.step = static_cast<int64_t>(*step), record.time = *time;
  std::erase_if(record.fields, [](const auto& field) {
    return field.first == "kind" || field.first == "step" || field.first == "time";
  });
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

}  // namespace tandem::observe
