// One line of a metrics file, quickly: a flat JSON object of numbers and texts, seen in place.
//
// What the trainer writes most of all, train records, is read in one pass without an allocation; any other line goes
// through parse_record(), which is complete and ten times slower. Both give the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/metrics.h"

namespace tandem::observe {

// Cut to what a report shows, between two characters.
constexpr size_t kLongestText = 1 << 12, kLongestName = 128;  // bytes
std::string kept_text(std::string_view text, size_t longest = kLongestText);

class MetricsLine {
 public:
  struct Field {
    std::string_view name;
    std::optional<double> number;  // also "NaN", "Infinity" and "-Infinity"
    std::string_view text;         // of a text
  };

  // False where the line is no record. What is seen holds until the next call, as long as `line` does.
  bool parse(std::string_view line);

  std::string_view kind() const { return kind_; }
  int64_t step() const { return step_; }
  double time() const { return time_; }
  const std::vector<Field>& fields() const { return fields_; }
  bool has(std::string_view name) const;
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
