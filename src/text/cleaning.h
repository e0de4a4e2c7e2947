// Decides which sentence pairs are fit for training.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

struct CleaningRules {
  int64_t min_words = 1;
  int64_t max_words = 80;  // 0 = no limit
  double max_ratio = 9;    // words of the longer side per word of the shorter; 0 = no limit
};

// Why a pair is dropped: the first reason that applies.
enum class DropReason : uint8_t {
  none,
  oversized,
  invalid_utf8,
  empty,
  too_short,
  too_long,
  ratio,
  duplicate,
  held_out
};
constexpr size_t kDropReasons = 9;

// The names in messages and stats.json, indexed by reason.
constexpr std::array<const char*, kDropReasons> kDropNames = {
    "none",         "oversized line", "invalid UTF-8",        "empty", "too few words", "too many words",
    "length ratio", "duplicate",      "in the validation set"};

bool valid_utf8(std::string_view text);

// Runs of spaces and control characters (tabs included) become one space, or none at the ends. Other text stays.
void tidy(std::string& line);

// Removes and returns the text before the first space; that space is removed, too.
std::string_view take_word(std::string_view& line);

// Words between spaces of a tidy line.
int64_t count_words(std::string_view line);

// Both lines must be tidy. Never returns oversized, duplicate or held_out: those need more than the pair.
DropReason check_pair(std::string_view source, std::string_view target, const CleaningRules& rules);

}  // namespace tandem::text
