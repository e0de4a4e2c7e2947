#include "observe/metrics_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tandem::observe {

namespace {

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

bool MetricsLine::has(std::string_view name) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) { return field.name == name; });
}

double MetricsLine::number(std::string_view name, double otherwise) const {
  for (const Field& field : fields_) {
    if (field.name == name) {
      return field.number.value_or(otherwise);
    }
  }
  return otherwise;
}

std::string_view MetricsLine::text(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name == name) {
      return field.text;
    }
  }
  return {};
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
