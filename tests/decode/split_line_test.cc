#include <gtest/gtest.h>

#include <algorithm>

#include "core/philox.h"
#include "decode/line_translator.h"

namespace tandem::decode {
namespace {

using Parts = std::vector<std::string>;

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    words += text[i] != ' ' && (i == 0 || text[i - 1] == ' ');
  }
  return words;
}

int64_t count_bytes(std::string_view text) { return static_cast<int64_t>(text.size()); }

TEST(SplitLine, KeepsALineThatFits) {
  EXPECT_EQ(split_line("one two three", 3, count_words), (Parts{"one two three"}));
  EXPECT_EQ(split_line("  one  two ", 3, count_words), (Parts{"one  two"}));
  EXPECT_EQ(split_line("", 3, count_words), Parts{});
  EXPECT_EQ(split_line("   ", 3, count_words), Parts{});
}

TEST(SplitLine, PrefersSentenceEndsThenClausesThenWords) {
  EXPECT_EQ(split_line("a b, c d. e f g h", 6, count_words), (Parts{"a b, c d.", "e f g h"}));
  EXPECT_EQ(split_line("a b c d, e f g h", 6, count_words), (Parts{"a b c d,", "e f g h"}));
  EXPECT_EQ(split_line("a b c d e f g h", 6, count_words), (Parts{"a b c d e f", "g h"}));
  // Not so early that the part would be nearly empty.
  EXPECT_EQ(split_line("a. b c d e f g h", 6, count_words), (Parts{"a. b c d e f", "g h"}));
}

TEST(SplitLine, SeesSentenceEndsBehindQuotesAndWithoutSpaces) {
  EXPECT_EQ(split_line("a b c \"d.\" e f g h", 6, count_words), (Parts{"a b c \"d.\"", "e f g h"}));
  EXPECT_EQ(split_line("a b c „d!” e f g h", 6, count_words), (Parts{"a b c „d!”", "e f g h"}));
  EXPECT_EQ(split_line("一二三。四五六，七八九", 24, count_bytes), (Parts{"一二三。", "四五六，七八九"}));
}

TEST(SplitLine, CutsALongWordBetweenCharacters) {
  std::string word;
  for (int i = 0; i < 50; ++i) {
    word += "ü";
  }
  const Parts parts = split_line(word, 7, count_bytes);
  std::string joined;
  for (const std::string& part : parts) {
    EXPECT_LE(part.size(), 7U);
    EXPECT_EQ(part.size() % 2, 0U) << "a character was cut in two";
    joined += part;
  }
  EXPECT_EQ(joined, word);
}

TEST(SplitLine, LosesNothingAndFitsWhateverTheText) {
  const std::string alphabet = "ab  .,!\t\xC3\xBC\xE2\x80\x9D\x80\xFF";
  for (uint32_t seed = 0; seed < 300; ++seed) {
    PhiloxStream random(1, 2, seed);
    std::string line;
    for (uint64_t i = random.below(200); i > 0; --i) {
      line += alphabet[random.below(alphabet.size())];
    }
    const auto limit = static_cast<int64_t>(4 + random.below(20));
    std::string expected, joined;
    for (const char c : line) {
      expected += c == ' ' || c == '\t' ? "" : std::string(1, c);
    }
    for (const std::string& part : split_line(line, limit, count_bytes)) {
      EXPECT_FALSE(part.empty());
      for (const char c : part) {
        joined += c == ' ' || c == '\t' ? "" : std::string(1, c);
      }
    }
    EXPECT_EQ(joined, expected) << "seed " << seed;
  }
}

TEST(SplitLine, FitsWhenJoinedPiecesCostMoreThanTheirSum) {
  const auto costly = [](std::string_view text) { return count_words(text) * count_words(text); };
  for (const std::string& part : split_line("a b c d e f g h i j k l m n o p", 9, costly)) {
    EXPECT_LE(costly(part), 9);
  }
  // A character that never fits is left out.
  EXPECT_EQ(split_line("a b", 5, [](std::string_view text) { return text == "b" ? 6 : 1; }), (Parts{"a"}));
}

TEST(SplitLine, CountsALongLineAFewTimesHoweverLongItIs) {
  const auto repeated = [](std::string_view text, size_t bytes) {
    std::string line;
    while (line.size() < bytes) {
      line += text;
    }
    return line;
  };
  for (const size_t bytes : {size_t{10'000}, size_t{1'000'000}}) {
    // Words, one word, wide text with marks and without, bytes that are not UTF-8, and a word whose pieces are all in
    // its last hundredth.
    for (const std::string& line :
         {repeated("some words, and more. ", bytes), repeated("word", bytes), repeated("一二三四，五六七。", bytes),
          repeated("一二三", bytes), repeated("\x80", bytes), repeated("_", bytes) + repeated("word", bytes / 100)}) {
      size_t counted = 0;
      const auto count = [&](std::string_view text) {
        counted += text.size();
        return static_cast<int64_t>(text.size()) - std::count(text.begin(), text.end(), '_');
      };
      const Parts parts = split_line(line, 100, count);
      EXPECT_LE(counted, 6 * line.size()) << line.substr(0, 20);
      for (const std::string& part : parts) {
        EXPECT_LE(count(part), 100);
      }
    }
  }
}

TEST(SplitLine, LosesNoCharacterOfAWordThatHasMostOfItsPiecesElsewhere) {
  const auto count = [](std::string_view text) {
    return static_cast<int64_t>(text.size()) + 1000 * std::count(text.begin(), text.end(), '#');
  };
  std::string joined;
  for (const std::string& part : split_line("abcdefg###hijklmnop", 3, count)) {
    EXPECT_LE(count(part), 3);
    joined += part;
  }
  EXPECT_EQ(joined, "abcdefghijklmnop");
}

}  // namespace
}  // namespace tandem::decode
