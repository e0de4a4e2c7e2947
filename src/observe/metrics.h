// Metrics of a run as JSON lines: <run>/metrics/<rank>.jsonl, one object a line. metrics_writer.h writes them.
//
//   {"kind":"train","step":100,"time":1700000000.25,"loss":7.31,"lr":1.2e-05}
//
// kind, step and time come first, then named numbers and texts in the order given. JSON has no NaN and no infinity:
// such numbers are written as the texts "NaN", "Infinity" and "-Infinity", which Record::number understands (as do
// Number() of JavaScript and float() of Python).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::observe {

double unix_time();  // seconds with fraction

struct Record {
  using Value = std::variant<double, std::string>;

  std::string kind;  // "train", "valid", "sample", "event", ...
  int64_t step = 0;
  double time = unix_time();
  std::vector<std::pair<std::string, Value>> fields{};  // names are unique, and none is kind, step or time

  Record& add(std::string name, double value) {
    fields.emplace_back(std::move(name), value);
    return *this;
  }
  Record& add(std::string name, std::string value) {
    fields.emplace_back(std::move(name), std::move(value));
    return *this;
  }

  std::optional<double> number(std::string_view name) const;
  const std::string* text(std::string_view name) const;
};

// The number, which may be written as "NaN", "Infinity" or "-Infinity"; nothing for other texts.
std::optional<double> number_in(const Record::Value& value);

// One line, without the newline. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Record& record);

// Nothing if the line is not a record (torn, garbage, other JSON). Fields that are neither number nor text are left
// out. Flat objects of numbers and plain texts, which the trainer mostly writes, are read in one pass; any other line
// goes through a complete parser that is several times slower.
std::optional<Record> parse_record(std::string_view line);

// The text; if it is longer than `longest` bytes, cut between two characters and ended with "...".
constexpr size_t kLongestText = 1 << 12, kLongestName = 128;  // bytes
std::string kept_text(std::string_view text, size_t longest = kLongestText);

}  // namespace tandem::observe
