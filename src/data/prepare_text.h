// Checks of prepare's settings, and its validation and test sets.
#pragma once

#include <cstdint>
#include <string>

#include "data/prepare.h"

namespace tandem {

// Lines of both sides as they came, "\n" after each.
struct TextSet {
  void add(const std::string& source_line, const std::string& target_line);

  std::string source, target;
  int64_t pairs = 0;
};

// Nothing is cleaned: the reference must stay raw. Fails for unequal line counts and for text that is not UTF-8; warns
// of empty lines. Both names empty = an empty set.
TextSet read_text_set(const std::string& source, const std::string& target);

// Fails with one sentence that lists every impossible setting.
void check_config(const PrepareConfig& config);

}  // namespace tandem
