#include "text/cleaning.h"

#include <gtest/gtest.h>

namespace tandem::text {
namespace {

std::string tidied(std::string line) {
  tidy(line);
  return line;
}

std::string words(int64_t count) {
  std::string line = "w";
  for (int64_t i = 1; i < count; ++i) {
    line += " w";
  }
  return line;
}

TEST(Cleaning, Tidies) {
  EXPECT_EQ(tidied("  a\tb \x01\x7F c\r"), "a b c");
  EXPECT_EQ(tidied("a\xC2\x85"
                   "b\xC2\x9F"),
            "a b");
  EXPECT_EQ(tidied(" \t "), "");
  EXPECT_EQ(tidied(""), "");
  EXPECT_EQ(tidied("gr\xC3\xBC\xC3\x9F\xC2\xA0"
                   "Gott\xC2"),
            "gr\xC3\xBC\xC3\x9F\xC2\xA0"
            "Gott\xC2")
      << "text is not touched";
}

TEST(Cleaning, ValidUtf8) {
  for (const char* good :
       {"", "abc", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\xA4\xB7", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(valid_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "a\xC3", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x28\xA1"}) {
    EXPECT_FALSE(valid_utf8(bad)) << bad;
  }
}

TEST(Cleaning, FirstReasonThatApplies) {
  const CleaningRules rules;
  EXPECT_EQ(check_pair("a b", "c", rules), DropReason::none);
  EXPECT_EQ(check_pair("", "\xFF", rules), DropReason::invalid_utf8);
  EXPECT_EQ(check_pair("", words(100), rules), DropReason::empty);
  EXPECT_EQ(check_pair("a", "", rules), DropReason::empty);
  EXPECT_EQ(check_pair(words(80), words(80), rules), DropReason::none);
  EXPECT_EQ(check_pair(words(81), words(80), rules), DropReason::too_long);
  EXPECT_EQ(check_pair(words(10), words(10'000), rules), DropReason::too_long);
  EXPECT_EQ(check_pair(words(9), words(1), rules), DropReason::none);
  EXPECT_EQ(check_pair(words(1), words(10), rules), DropReason::ratio);
  EXPECT_EQ(check_pair(words(2), words(5), {.min_words = 3, .max_words = 80, .max_ratio = 9}), DropReason::too_short);
  EXPECT_EQ(check_pair(words(1), words(5000), {.min_words = 1, .max_words = 0, .max_ratio = 0}), DropReason::none);
}

}  // namespace
}  // namespace tandem::text
