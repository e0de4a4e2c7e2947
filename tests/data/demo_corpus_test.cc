#include "data/demo_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace tandem::data {
namespace {

TEST(DemoCorpus, NumberWords) {
  struct Case {
    int64_t number;
    std::string english, german;
  };
  const std::vector<Case> cases = {
      {0, "zero", "null"},
      {1, "one", "eins"},
      {2, "two", "zwei"},
      {7, "seven", "sieben"},
      {10, "ten", "zehn"},
      {11, "eleven", "elf"},
      {12, "twelve", "zwölf"},
      {16, "sixteen", "sechzehn"},
      {17, "seventeen", "siebzehn"},
      {20, "twenty", "zwanzig"},
      {21, "twenty-one", "einundzwanzig"},
      {30, "thirty", "dreißig"},
      {47, "forty-seven", "siebenundvierzig"},
      {66, "sixty-six", "sechsundsechzig"},
      {77, "seventy-seven", "siebenundsiebzig"},
      {99, "ninety-nine", "neunundneunzig"},
      {100, "one hundred", "einhundert"},
      {101, "one hundred and one", "einhunderteins"},
      {111, "one hundred and eleven", "einhundertelf"},
      {121, "one hundred and twenty-one", "einhunderteinundzwanzig"},
      {200, "two hundred", "zweihundert"},
      {999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"},
      {1000, "one thousand", "eintausend"},
      {1001, "one thousand and one", "eintausendeins"},
      {1100, "one thousand one hundred", "eintausendeinhundert"},
      {2016, "two thousand and sixteen", "zweitausendsechzehn"},
      {21000, "twenty-one thousand", "einundzwanzigtausend"},
      {21021, "twenty-one thousand and twenty-one", "einundzwanzigtausendeinundzwanzig"},
      {100000, "one hundred thousand", "einhunderttausend"},
      {101000, "one hundred and one thousand", "einhunderteintausend"},
      {101101, "one hundred and one thousand one hundred and one", "einhunderteintausendeinhunderteins"},
      {999999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
       "neunhundertneunundneunzigtausendneunhundertneunundneunzig"},
  };
  for (const auto& [number, english, german] : cases) {
    EXPECT_EQ(english_number(number), english);
    EXPECT_EQ(german_number(number), german);
  }
  EXPECT_THROW(english_number(1000000), Error);
  EXPECT_THROW(german_number(-1), Error);
}

TEST(DemoCorpus, NumberWordsAreDistinct) {
  std::set<std::string> english, german;
  for (int64_t n = 0; n < 1000000; n += n < 5000 ? 1 : 97) {
    EXPECT_TRUE(english.insert(english_number(n)).second) << n;
    EXPECT_TRUE(german.insert(german_number(n)).second) << n;
  }
}

TEST(DemoCorpus, NoSideOccursTwice) {
  std::set<std::string> sources, targets;
  const auto pairs = demo_pairs(20000, 1);
  ASSERT_EQ(pairs.size(), 20000U);
  for (const auto& [source, target] : pairs) {
    EXPECT_TRUE(sources.insert(source).second) << source;
    EXPECT_TRUE(targets.insert(target).second) << target;
    EXPECT_LE(std::count(source.begin(), source.end(), ' '), 11) << source;
    EXPECT_EQ(source.find("  "), std::string::npos) << source;
    EXPECT_EQ(target.find("  "), std::string::npos) << target;
  }
}

TEST(DemoCorpus, SeedDecides) {
  const auto text = [](const std::vector<DemoPair>& pairs) {
    std::string all;
    for (const auto& pair : pairs) {
      all += pair.source + "\t" + pair.target + "\n";
    }
    return all;
  };
  EXPECT_EQ(text(demo_pairs(500, 7)), text(demo_pairs(500, 7)));
  EXPECT_NE(text(demo_pairs(500, 7)), text(demo_pairs(500, 8)));
  EXPECT_TRUE(demo_pairs(0, 7).empty());
  EXPECT_THROW(demo_pairs(-1, 7), Error);
  EXPECT_THROW(demo_pairs(kMostDemoPairs + 1, 7), Error);
}

TEST(DemoCorpus, DatesPricesAndTimes) {
  const auto check = [](const DemoPair& pair, const std::string& english, const std::string& german) {
    EXPECT_EQ(pair.source, english);
    EXPECT_EQ(pair.target, german);
  };
  check(demo_date(3, 3, 1987), "the third of March, nineteen eighty-seven",
        "der dritte März neunzehnhundertsiebenundachtzig");
  check(demo_date(1, 1, 2005), "the first of January, two thousand and five", "der erste Januar zweitausendfünf");
  check(demo_date(7, 5, 1801), "the seventh of May, eighteen oh one", "der siebte Mai achtzehnhunderteins");
  check(demo_date(8, 8, 1900), "the eighth of August, nineteen hundred", "der achte August neunzehnhundert");
  check(demo_date(20, 10, 2020), "the twentieth of October, twenty twenty",
        "der zwanzigste Oktober zweitausendzwanzig");
  check(demo_date(29, 2, 2000), "the twenty-ninth of February, two thousand",
        "der neunundzwanzigste Februar zweitausend");
  check(demo_date(31, 12, 1100), "the thirty-first of December, eleven hundred",
        "der einunddreißigste Dezember elfhundert");
  check(demo_date(12, 6, 2012), "the twelfth of June, twenty twelve", "der zwölfte Juni zweitausendzwölf");
  check(demo_price(71, 1), "seventy-one euros and one cent", "einundsiebzig Euro und ein Cent");
  check(demo_price(1, 31), "one euro and thirty-one cents", "ein Euro und einunddreißig Cent");
  check(demo_time(4, 14, 1), "on Friday at fourteen oh one", "am Freitag um vierzehn Uhr eins");
  check(demo_time(0, 1, 0), "on Monday at one o'clock", "am Montag um ein Uhr");
  check(demo_time(6, 21, 56), "on Sunday at twenty-one fifty-six", "am Sonntag um einundzwanzig Uhr sechsundfünfzig");
  EXPECT_THROW(demo_date(29, 2, 1900), Error);
  EXPECT_THROW(demo_price(0, 1), Error);
  EXPECT_THROW(demo_time(7, 1, 1), Error);
}

TEST(DemoCorpus, HasItemsOfEveryKind) {
  size_t dates = 0, prices = 0, times = 0;
  for (const auto& [source, target] : demo_pairs(1000, 3)) {
    dates += source.starts_with("the ") && target.starts_with("der ");
    prices += source.find(" cent") != std::string::npos && target.ends_with(" Cent");
    times += source.starts_with("on ") && target.starts_with("am ");
  }
  EXPECT_GT(dates, 100U);
  EXPECT_GT(prices, 100U);
  EXPECT_GT(times, 50U);
  EXPECT_LT(dates + prices + times, 700U);
}

}  // namespace
}  // namespace tandem::data
