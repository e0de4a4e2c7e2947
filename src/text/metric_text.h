// Text as the sacreBLEU package treats it: code points, Python's white space and lower case, words and n-grams.
//
// Unicode properties are ICU's (Unicode 15 in Debian 12); a code point assigned later counts as neither letter nor
// punctuation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::text::metric {

// Bytes that are not valid UTF-8 become U+FFFD, one for each maximal part, as Python's errors="replace" does.
std::u32string code_points(std::string_view utf8);

bool is_space(char32_t c);                                    // str.isspace()
std::vector<std::u32string_view> split(std::u32string_view);  // str.split(): views into the argument
std::u32string_view rstrip(std::u32string_view);              // str.rstrip()
std::u32string lower(std::u32string_view);                    // str.lower()
// str.replace(); `from` must not be empty.
std::u32string replace_all(std::u32string_view text, std::u32string_view from, std::u32string_view to);

// Bytes of `line` without the white space that str.rstrip() removes.
std::string_view rstrip_utf8(std::string_view line);

// Numbers for words: equal words get equal numbers. The text behind the views must outlive the object.
class WordNumbers {
 public:
  std::vector<uint32_t> operator()(const std::vector<std::u32string_view>& words);

 private:
  std::unordered_map<std::u32string_view, uint32_t> numbers_;
};

// ---- counts of n-grams of words or characters within one segment

// [order - 1][number of the n-gram] = how often it occurs. Counts made by one counter share their numbers; an earlier
// sequence's counts may be shorter, and the missing ones are zero.
using NgramCounts = std::vector<std::vector<int64_t>>;

class NgramCounter {
 public:
  explicit NgramCounter(int max_order) : numbers_(static_cast<size_t>(max_order)) {}

  NgramCounts operator()(std::span<const uint32_t> tokens);

 private:
  // [order - 1]: (number of the n-gram without its last token, last token) -> number of the n-gram
  std::vector<std::unordered_map<uint64_t, uint32_t>> numbers_;
};

int64_t total(const std::vector<int64_t>& counts);
// Sum over n-grams of the smaller count.
int64_t matches(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
// `counts` becomes the larger of both for every n-gram.
void keep_larger(NgramCounts& counts, const NgramCounts& other);

}  // namespace tandem::text::metric
