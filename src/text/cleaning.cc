#include "text/cleaning.h"

#include <unicode/utf8.h>

#include <algorithm>

namespace tandem::text {

bool valid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    UChar32 character = 0;
    U8_NEXT(bytes, i, text.size(), character);
    if (character < 0) {
      return false;
    }
  }
  return true;
}

void tidy(std::string& line) {
  size_t size = 0;
  bool space = true;  // prevents a space at the beginning of the line
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    // U+0080 to U+009F are two bytes, C2 80 to C2 9F.
    const bool high_control = byte == 0xC2 && i + 1 < line.size() && static_cast<unsigned char>(line[i + 1]) >= 0x80 &&
                              static_cast<unsigned char>(line[i + 1]) < 0xA0;
    const bool is_space = byte <= ' ' || byte == 0x7F || high_control;
    i += high_control ? 1 : 0;
    if (!is_space) {
      line[size++] = static_cast<char>(byte);
    } else if (!space) {
      line[size++] = ' ';
    }
    space = is_space;
  }
  line.resize(size > 0 && line[size - 1] == ' ' ? size - 1 : size);
}

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

int64_t count_words(std::string_view line) { return line.empty() ? 0 : 1 + std::count(line.begin(), line.end(), ' '); }

DropReason check_pair(std::string_view source, std::string_view target, const CleaningRules& rules) {
  if (!valid_utf8(source) || !valid_utf8(target)) {
    return DropReason::invalid_utf8;
  }
  if (source.empty() || target.empty()) {
    return DropReason::empty;
  }
  const auto [shorter, longer] = std::minmax({count_words(source), count_words(target)});
  if (shorter < rules.min_words) {
    return DropReason::too_short;
  }
  if (rules.max_words > 0 && longer > rules.max_words) {
    return DropReason::too_long;
  }
  if (rules.max_ratio > 0 && static_cast<double>(longer) > rules.max_ratio * static_cast<double>(shorter)) {
    return DropReason::ratio;
  }
  return DropReason::none;
}

}  // namespace tandem::text
