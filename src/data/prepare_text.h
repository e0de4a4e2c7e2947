// Checks prepare's settings, and reads its validation and test sets.
#pragma once

#include <cstdint>
#include <string>

#include "data/prepare.h"

namespace tandem::data {

// The unchanged lines of both sides, with "\n" after each.
struct TextSet {
  void add(const std::string& source_line, const std::string& target_line);

  std::string source, target;
  int64_t pairs = 0;
};

// The text is not cleaned: the reference must stay raw. Fails for unequal line counts and for text that is not UTF-8;
// warns of empty lines. If both names are empty, so is the set.
TextSet read_text_set(const std::string& source, const std::string& target);

// Fails with a message that lists every impossible setting.
void check_config(const PrepareConfig& config);

}  // namespace tandem::data
