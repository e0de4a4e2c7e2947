// Cuts a line that is too long for the model into parts that are short enough.
#include <algorithm>
#include <array>

#include "decode/line_translator.h"

namespace tandem::decode {

namespace {

enum class Break : uint8_t { inside_word, word, clause, sentence };

// A stretch of text that ends where a cut is possible.
struct Unit {
  std::string_view text;
  int64_t pieces = 0;
  Break end = Break::word;
};

using CountPieces = std::function<int64_t(std::string_view)>;

constexpr std::string_view kSpaces = " \t\r\n\v\f";
constexpr std::array<std::string_view, 4> kSentenceMarks = {".", "!", "?", "…"};
constexpr std::array<std::string_view, 5> kClauseMarks = {",", ";", ":", "–", "—"};
constexpr std::array<std::string_view, 9> kClosers = {"\"", "'", ")", "]", "}", "”", "’", "»", "“"};
// Marks that end a unit without a space after them.
constexpr std::array<std::string_view, 4> kWideSentenceMarks = {"。", "！", "？", "।"};
constexpr std::array<std::string_view, 4> kWideClauseMarks = {"，", "、", "；", "："};

// The length of the mark that `text` ends with, or 0.
template <size_t N>
size_t mark_at_end(std::string_view text, const std::array<std::string_view, N>& marks) {
  for (const std::string_view mark : marks) {
    if (text.ends_with(mark)) {
      return mark.size();
    }
  }
  return 0;
}

Break break_after(std::string_view word) {
  while (const size_t closer = mark_at_end(word, kClosers)) {
    word.remove_suffix(closer);
  }
  if (mark_at_end(word, kSentenceMarks) + mark_at_end(word, kWideSentenceMarks) > 0) {
    return Break::sentence;
  }
  return mark_at_end(word, kClauseMarks) + mark_at_end(word, kWideClauseMarks) > 0 ? Break::clause : Break::word;
}

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// A character boundary near the middle; the middle itself if the text is not UTF-8; 0 for a single character.
size_t middle(std::string_view text) {
  constexpr size_t kLongestCharacter = 4;
  for (size_t distance = 0; distance < text.size() / 2 + 1; ++distance) {
    for (const size_t place : {text.size() / 2 + distance, text.size() / 2 - std::min(distance, text.size() / 2)}) {
      if (place > 0 && place < text.size() && starts_character(text[place])) {
        return place;
      }
    }
  }
  return text.size() > kLongestCharacter ? text.size() / 2 : 0;
}

// `share`: the text's share of the pieces counted in a longer text around it. If it is far above the limit, the text is
// cut without counting, so that a long word is counted a few times and not once for each halving.
void add_unit(std::string_view text, Break end, int64_t share, int64_t limit, const CountPieces& count_pieces,
              std::vector<Unit>& units) {
  const size_t half = middle(text);
  const int64_t pieces = half > 0 && share > 4 * limit ? share : count_pieces(text);
  if (pieces <= limit) {
    units.push_back({text, pieces, end});
  } else if (half > 0) {
    add_unit(text.substr(0, half), Break::inside_word, pieces / 2, limit, count_pieces, units);
    add_unit(text.substr(half), end, pieces / 2, limit, count_pieces, units);
  }
}

std::vector<Unit> units_of(std::string_view line, int64_t limit, const CountPieces& count_pieces) {
  std::vector<Unit> units;
  size_t begin = line.find_first_not_of(kSpaces);
  size_t space = 0;  // position of the next space, searched once: text without spaces has many units before it
  while (begin != std::string_view::npos) {
    if (begin >= space) {
      space = std::min(line.find_first_of(kSpaces, begin), line.size());
    }
    size_t end = begin + 1;
    while (end < space && mark_at_end(line.substr(begin, end - begin), kWideSentenceMarks) +
                                  mark_at_end(line.substr(begin, end - begin), kWideClauseMarks) ==
                              0) {
      ++end;
    }
    const std::string_view text = line.substr(begin, end - begin);
    add_unit(text, break_after(text), 0, limit, count_pieces, units);
    begin = line.find_first_not_of(kSpaces, end);
  }
  return units;
}

// The number of the first `fitting` units to take: up to the last good place in the second half of what fits.
size_t cut(const std::vector<Unit>& units, size_t first, size_t fitting) {
  for (const Break wanted : {Break::sentence, Break::clause, Break::word}) {
    for (size_t count = fitting; count >= std::max<size_t>(1, fitting / 2); --count) {
      if (units[first + count - 1].end >= wanted) {
        return count;
      }
    }
  }
  return fitting;
}

std::string_view span_of(const std::vector<Unit>& units, size_t first, size_t count) {
  const char* begin = units[first].text.data();
  const std::string_view last = units[first + count - 1].text;
  return {begin, static_cast<size_t>(last.data() + last.size() - begin)};
}

}  // namespace

std::vector<std::string> split_line(std::string_view line, int64_t limit, const CountPieces& count_pieces) {
  const std::vector<Unit> units = units_of(line, limit, count_pieces);
  std::vector<std::string> parts;
  size_t first = 0;
  while (first < units.size()) {
    size_t count = 0;
    int64_t pieces = 0;
    while (first + count < units.size() && pieces + units[first + count].pieces <= limit) {
      pieces += units[first + count].pieces;
      ++count;
    }
    if (first + count < units.size()) {
      count = cut(units, first, count);
    }
    // Joined units may have other pieces than the units alone.
    while (count > 1 && count_pieces(span_of(units, first, count)) > limit) {
      count /= 2;
    }
    parts.emplace_back(span_of(units, first, count));
    first += count;
  }
  return parts;
}

}  // namespace tandem::decode
