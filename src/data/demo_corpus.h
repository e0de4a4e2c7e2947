// A made-up corpus for the demo: English and German number words, dates, prices and times of day.
//
// The translation is real: German puts the units before the tens and writes a number as one word ("forty-seven thousand
// and twelve" = "siebenundvierzigtausendzwölf"), so words move and none is copied. About 1.4 million items exist.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::data {

struct DemoPair {
  std::string source;  // English
  std::string target;  // German
};

constexpr int64_t kMostDemoPairs = 500000;

// `count` pairs in random order, the same for the same arguments. No source and no target occurs twice, so any subset
// can be held out. Short items are over-represented: about all numbers below a thousand come early.
std::vector<DemoPair> demo_pairs(int64_t count, uint64_t seed);

// Cardinal numbers from 0 to 999,999 in words.
std::string english_number(int64_t number);
std::string german_number(int64_t number);

// The other kinds of items. Years are 1100 to 2099; weekday 0 is Monday; prices have 1 to 999 euros and 1 to 99 cents.
DemoPair demo_date(int64_t day, int64_t month, int64_t year);
DemoPair demo_price(int64_t euros, int64_t cents);
DemoPair demo_time(int64_t weekday, int64_t hour, int64_t minute);

}  // namespace tandem::data
