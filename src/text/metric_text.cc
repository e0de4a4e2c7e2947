#include "text/metric_text.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace tandem::text::metric {

std::u32string code_points(std::string_view utf8) {
  require(utf8.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
          "a line of {} bytes is too long to score: the limit is 2 GiB", utf8.size());
  std::u32string text;
  text.reserve(utf8.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(utf8.data());
  const auto size = static_cast<int32_t>(utf8.size());
  for (int32_t i = 0; i < size;) {
    UChar32 c = 0;
    U8_NEXT_OR_FFFD(bytes, i, size, c);
    text += static_cast<char32_t>(c);
  }
  return text;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<std::u32string_view> split(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (size_t i = 0; i < text.size();) {
    if (is_space(text[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text.size() && !is_space(text[i])) {
      ++i;
    }
    words.push_back(text.substr(begin, i - begin));
  }
  return words;
}

std::u32string_view rstrip(std::u32string_view text) {
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::string_view rstrip_utf8(std::string_view line) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(line.data());
  auto end = static_cast<int32_t>(line.size());
  while (end > 0) {
    int32_t i = end;
    UChar32 c = 0;
    U8_PREV_OR_FFFD(bytes, 0, i, c);
    if (!is_space(static_cast<char32_t>(c))) {
      break;
    }
    end = i;
  }
  return line.substr(0, static_cast<size_t>(end));
}

namespace {

bool has(char32_t c, UProperty property) { return u_hasBinaryProperty(static_cast<UChar32>(c), property) != 0; }

// Whether the capital sigma at `at` ends a word: there is a cased letter before it and none after it; case-ignorable
// characters are skipped.
bool is_final_sigma(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && has(text[before - 1], UCHAR_CASE_IGNORABLE)) {
    --before;
  }
  if (before == 0 || !has(text[before - 1], UCHAR_CASED)) {
    return false;
  }
  size_t after = at + 1;
  while (after < text.size() && has(text[after], UCHAR_CASE_IGNORABLE)) {
    ++after;
  }
  return after == text.size() || !has(text[after], UCHAR_CASED);
}

}  // namespace

std::u32string lower(std::u32string_view text) {
  constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalIWithDot = 0x130;
  std::u32string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kCapitalSigma) {
      result += is_final_sigma(text, i) ? kFinalSigma : kSigma;
    } else if (text[i] == kCapitalIWithDot) {
      result += U"i\u0307";
    } else {
      result += static_cast<char32_t>(u_tolower(static_cast<UChar32>(text[i])));
    }
  }
  return result;
}

std::u32string replace_all(std::u32string_view text, std::u32string_view from, std::u32string_view to) {
  std::u32string result;
  result.reserve(text.size());
  size_t begin = 0;
  for (size_t at = 0; (at = text.find(from, begin)) != std::u32string_view::npos; begin = at + from.size()) {
    result.append(text.substr(begin, at - begin)).append(to);
  }
  return result.append(text.substr(begin));
}

std::vector<uint32_t> WordNumbers::operator()(const std::vector<std::u32string_view>& words) {
  std::vector<uint32_t> result;
  result.reserve(words.size());
  for (const auto& word : words) {
    result.push_back(numbers_.try_emplace(word, static_cast<uint32_t>(numbers_.size())).first->second);
  }
  return result;
}

NgramCounts NgramCounter::operator()(std::span<const uint32_t> tokens) {
  NgramCounts counts(numbers_.size());
  std::vector<uint32_t> prefix(tokens.size(), 0);  // at i: number of the (n-1)-gram that begins there
  for (size_t n = 0; n < numbers_.size() && n < tokens.size(); ++n) {
    auto& numbers = numbers_[n];
    auto& count = counts[n];
    count.resize(numbers.size());
    for (size_t i = 0; i + n < tokens.size(); ++i) {
      const uint64_t key = uint64_t{prefix[i]} << 32 | tokens[i + n];
      const uint32_t number = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second;
      prefix[i] = number;
      count.resize(numbers.size());
      ++count[number];
    }
  }
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

int64_t matches(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  int64_t sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    sum += std::min(a[i], b[i]);
  }
  return sum;
}

void keep_larger(NgramCounts& counts, const NgramCounts& other) {
  for (size_t n = 0; n < counts.size(); ++n) {
    counts[n].resize(std::max(counts[n].size(), other[n].size()));
    for (size_t i = 0; i < other[n].size(); ++i) {
      counts[n][i] = std::max(counts[n][i], other[n][i]);
    }
  }
}

}  // namespace tandem::text::metric
