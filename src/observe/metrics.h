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

double unix_time();  // seconds, with their fraction

struct Record {
  using Value = std::variant<double, std::string>;

  std::string kind;  // "train", "valid", "sample", "event", ...
  int64_t step = 0;
  double time = unix_time();
  std::vector<std::pair<std::string, Value>> fields{};  // names are unique; kind, step and time are taken

  Record& add(std::string name, double value) {
    fields.emplace_back(std::move(name), value);
    return *this;
  }
  Record& add(std::string name, std::string value) {
    fields.emplace_back(std::move(name), std::move(value));
    return *this;
  }

  std::optional<double> number(const std::string& name) const;
  const std::string* text(const std::string& name) const;
};

// The number that "NaN", "Infinity" or "-Infinity" stands for; nothing for other texts.
std::optional<double> spelled_number(std::string_view text);

// One line without its end. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Record& record);

// Nothing if the line is no record (torn, garbage, another JSON). Fields of other types than number and text are
// left out.
std::optional<Record> parse_record(const std::string& line);

// Cut to what a report shows, between two characters.
constexpr size_t kLongestText = 1 << 12, kLongestName = 128;  // bytes
std::string kept_text(std::string_view text, size_t longest = kLongestText);

// One line of a metrics file, quickly: a flat JSON object of numbers and texts, seen in place.
//
// What the trainer writes most of all, train records, is read in one pass without an allocation; any other line goes
// through parse_record(), which is complete and ten times slower. Both give the same.
class MetricsLine {
 public:
  struct Field {
    std::string_view name;
    std::optional<double> number;  // also "NaN", "Infinity" and "-Infinity"
    std::string_view text;         // of a text
  };

  // False if the line is no record. What is seen holds until the next call, as long as `line` does.
  bool parse(std::string_view line);

  std::string_view kind() const { return kind_; }
  int64_t step() const { return step_; }
  double time() const { return time_; }
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;  // null if there is none
  double number(std::string_view name, double otherwise) const;
  std::string_view text(std::string_view name) const;  // empty when absent

 private:
  bool parse_flat(std::string_view line);
  bool take_known();  // kind, step and time out of the fields
  bool parse_slowly(std::string_view line);

  std::string_view kind_;
  int64_t step_ = 0;
  double time_ = 0;
  std::vector<Field> fields_;
  std::optional<Record> record_;  // what the views point into after parse_slowly
};

}  // namespace tandem::observe
