#include "text/tokenizers.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "text/metric_text.h"
#include "text/ter.h"

namespace tandem::text::metric {

namespace {

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_not_digit(char32_t c) { return !is_digit(c); }
bool is_dash(char32_t c) { return c == '-'; }
bool is_period_or_comma(char32_t c) { return c == '.' || c == ','; }
// ASCII punctuation except ' , - . and, in addition, the space.
bool is_western_symbol(char32_t c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

bool is_in_category(char32_t c, uint32_t mask) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask) != 0; }
bool is_not_number(char32_t c) { return !is_in_category(c, U_GC_N_MASK); }
bool is_punctuation(char32_t c) { return is_in_category(c, U_GC_P_MASK); }
bool is_symbol(char32_t c) { return is_in_category(c, U_GC_S_MASK); }

// Adds a space on both sides of every character that `chosen` accepts.
template <class Chosen>
std::u32string pad(std::u32string_view line, Chosen chosen) {
  std::u32string result;
  result.reserve(2 * line.size());
  for (const char32_t c : line) {
    if (chosen(c)) {
      result.append({U' ', c, U' '});
    } else {
      result += c;
    }
  }
  return result;
}

enum class Pad { first, second };

// Adds a space on both sides of the first or the second of two neighbours; pairs are found from left to right and do
// not overlap, like the matches of a regular expression.
template <class First, class Second>
std::u32string pad_pairs(std::u32string_view line, First first, Second second, Pad which) {
  std::u32string result;
  result.reserve(2 * line.size());
  for (size_t i = 0; i < line.size();) {
    if (i + 1 < line.size() && first(line[i]) && second(line[i + 1])) {
      if (which == Pad::first) {
        result.append({U' ', line[i], U' ', line[i + 1]});
      } else {
        result.append({line[i], U' ', line[i + 1], U' '});
      }
      i += 2;
    } else {
      result += line[i++];
    }
  }
  return result;
}

std::u32string decode_entities(std::u32string line) {
  if (line.find(U'&') != std::u32string::npos) {
    line = replace_all(line, U"&quot;", U"\"");
    line = replace_all(line, U"&amp;", U"&");
    line = replace_all(line, U"&lt;", U"<");
    line = replace_all(line, U"&gt;", U">");
  }
  return line;
}

std::u32string cut_numbers(std::u32string line) {
  line = pad_pairs(line, is_not_digit, is_period_or_comma, Pad::second);
  line = pad_pairs(line, is_period_or_comma, is_not_digit, Pad::first);
  return pad_pairs(line, is_digit, is_dash, Pad::second);
}

}  // namespace

std::u32string tokenize_13a(std::u32string_view line) {
  std::u32string text = replace_all(line, U"<skipped>", U"");
  text = replace_all(text, U"-\n", U"");
  text = replace_all(text, U"\n", U" ");
  return cut_numbers(pad(U' ' + decode_entities(std::move(text)) + U' ', is_western_symbol));
}

std::u32string tokenize_intl(std::u32string_view line) {
  std::u32string text = pad_pairs(line, is_not_number, is_punctuation, Pad::second);
  text = pad_pairs(text, is_punctuation, is_not_number, Pad::first);
  return pad(text, is_symbol);
}

std::u32string tokenize_char(std::u32string_view line) {
  return pad(line, [](char32_t) { return true; });
}

std::u32string tokenize_none(std::u32string_view line) { return std::u32string(line); }

Tokenizer bleu_tokenizer(std::string_view name) {
  constexpr Tokenizer kTokenizers[] = {tokenize_13a, tokenize_intl, tokenize_char, tokenize_none};
  const auto found = std::ranges::find(kBleuTokenizers, name);
  require(found != kBleuTokenizers.end(), "unknown BLEU tokenizer '{}': use 13a, intl, char or none", name);
  return kTokenizers[found - kBleuTokenizers.begin()];
}

namespace {

struct Range {
  char32_t first, last;
};

template <size_t N>
bool is_in(char32_t c, const std::array<Range, N>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [c](Range range) { return c >= range.first && c <= range.last; });
}

bool is_asian_character(char32_t c) {
  static constexpr auto kRanges = std::to_array<Range>({{0x4E00, 0x9FFF},    // unified ideographs
                                                        {0x3200, 0x4DBF},    // enclosed, compatibility, extension A
                                                        {0x31C0, 0x31EF},    // strokes
                                                        {0x2E80, 0x2EFF},    // radicals
                                                        {0xF900, 0xFAFF},    // compatibility ideographs
                                                        {0xFE30, 0xFE4F}});  // compatibility forms
  return is_in(c, kRanges);
}

bool is_asian_punctuation(char32_t c) {
  static constexpr auto kRanges = std::to_array<Range>({{0x3001, 0x3002},
                                                        {0x3008, 0x3011},
                                                        {0x3014, 0x301F},
                                                        {0x30FB, 0x30FB},
                                                        {0xFF01, 0xFF02},
                                                        {0xFF08, 0xFF09},
                                                        {0xFF1A, 0xFF1B},
                                                        {0xFF1F, 0xFF1F},
                                                        {0xFF61, 0xFF65}});
  return is_in(c, kRanges) || c == 0xFF0C || c == 0xFF0E;
}

bool is_western_punctuation(char32_t c) {
  return c < 0x80 && std::u32string_view(U".,?:;!\"()").find(c) != std::u32string_view::npos;
}

std::u32string normalize_western(std::u32string_view line) {
  std::u32string text = replace_all(line, U"\n-", U"");
  text = replace_all(text, U"\n", U" ");
  text = pad(U' ' + decode_entities(std::move(text)) + U' ', is_western_symbol);
  return cut_numbers(replace_all(text, U"'s ", U" 's "));
}

}  // namespace

// sacreBLEU's patterns for runs of Hiragana and Katakana are anchored to the beginning of a text that always begins
// with a space; they never match and are left out.
std::u32string tokenize_tercom(std::u32string_view line, const TerOptions& options) {
  std::u32string text = options.case_sensitive ? std::u32string(line) : lower(line);
  if (options.normalized) {
    text = normalize_western(text);
    if (options.asian_support) {
      text = pad(text, [](char32_t c) { return is_asian_character(c) || is_asian_punctuation(c); });
    }
  }
  if (options.no_punct) {
    std::erase_if(text, is_western_punctuation);
    if (options.asian_support) {
      std::erase_if(text, is_asian_punctuation);
    }
  }
  std::u32string result;
  for (const auto word : split(text)) {
    result.append(result.empty() ? U"" : U" ").append(word);
  }
  return result;
}

}  // namespace tandem::text::metric
