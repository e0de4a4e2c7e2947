#include "data/demo_corpus.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/philox.h"

namespace tandem::data {

namespace {

using Name = std::string_view;

constexpr std::array<Name, 20> kEnglishUnits = {
    "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
    "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<Name, 10> kEnglishTens = {"",      "",      "twenty",  "thirty", "forty",
                                               "fifty", "sixty", "seventy", "eighty", "ninety"};
constexpr std::array<Name, 20> kGermanUnits = {
    "null", "ein", "zwei",  "drei",     "vier",     "fünf",     "sechs",    "sieben",   "acht",     "neun",
    "zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
constexpr std::array<Name, 10> kGermanTens = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                              "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};
constexpr std::array<Name, 20> kEnglishOrdinals = {"",          "first",     "second",      "third",      "fourth",
                                                   "fifth",     "sixth",     "seventh",     "eighth",     "ninth",
                                                   "tenth",     "eleventh",  "twelfth",     "thirteenth", "fourteenth",
                                                   "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"};
constexpr std::array<Name, 12> kEnglishMonths = {"January", "February", "March",     "April",   "May",      "June",
                                                 "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<Name, 12> kGermanMonths = {"Januar", "Februar", "März",      "April",   "Mai",      "Juni",
                                                "Juli",   "August",  "September", "Oktober", "November", "Dezember"};
constexpr std::array<Name, 7> kEnglishDays = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                              "Friday", "Saturday", "Sunday"};
constexpr std::array<Name, 7> kGermanDays = {"Montag",  "Dienstag", "Mittwoch", "Donnerstag",
                                             "Freitag", "Samstag",  "Sonntag"};

template <size_t N>
Name at(const std::array<Name, N>& names, int64_t index) {
  return names[static_cast<size_t>(index)];
}

std::string english_below_hundred(int64_t n) {
  if (n < 20) {
    return std::string(at(kEnglishUnits, n));
  }
  return n % 10 == 0 ? std::string(at(kEnglishTens, n / 10))
                     : fmt::format("{}-{}", at(kEnglishTens, n / 10), at(kEnglishUnits, n % 10));
}

std::string english_below_thousand(int64_t n) {
  if (n < 100) {
    return english_below_hundred(n);
  }
  const std::string hundreds = fmt::format("{} hundred", at(kEnglishUnits, n / 100));
  return n % 100 == 0 ? hundreds : hundreds + " and " + english_below_hundred(n % 100);
}

// A number as the first part of a longer word: a one at the end is "ein". Empty for 0.
std::string german_part(int64_t n) {
  if (n == 0) {
    return "";
  }
  if (n < 20) {
    return std::string(at(kGermanUnits, n));
  }
  if (n < 100) {
    const std::string tens(at(kGermanTens, n / 10));
    return n % 10 == 0 ? tens : fmt::format("{}und{}", at(kGermanUnits, n % 10), tens);
  }
  const int64_t unit = n < 1000 ? 100 : 1000;
  return german_part(n / unit) + (unit == 100 ? "hundert" : "tausend") + german_part(n % unit);
}

std::string english_ordinal(int64_t day) {
  if (day < 20) {
    return std::string(at(kEnglishOrdinals, day));
  }
  return day % 10 == 0 ? (day == 20 ? "twentieth" : "thirtieth")
                       : fmt::format("{}-{}", at(kEnglishTens, day / 10), at(kEnglishOrdinals, day % 10));
}

std::string german_ordinal(int64_t day) {
  switch (day) {
    case 1:
      return "erste";
    case 3:
      return "dritte";
    case 7:
      return "siebte";
    case 8:
      return "achte";
    default:
      return german_part(day) + (day < 20 ? "te" : "ste");
  }
}

std::string english_year(int64_t year) {
  if (year >= 2000 && year < 2010) {
    return english_number(year);
  }
  const std::string century = english_below_hundred(year / 100);
  const int64_t rest = year % 100;
  return rest == 0 ? century + " hundred" : century + (rest < 10 ? " oh " : " ") + english_below_hundred(rest);
}

std::string german_year(int64_t year) {
  if (year >= 2000) {
    return german_number(year);
  }
  return german_part(year / 100) + "hundert" + (year % 100 == 0 ? "" : german_number(year % 100));
}

int64_t days_of(int64_t month, int64_t year) {
  const auto last = std::chrono::year(static_cast<int>(year)) / static_cast<int>(month) / std::chrono::last;
  return static_cast<unsigned>(last.day());
}

void check(int64_t number) {
  require(number >= 0 && number <= 999999, "number words go from 0 to 999,999, not to {}", number);
}

}  // namespace

std::string english_number(int64_t number) {
  check(number);
  const int64_t thousands = number / 1000, rest = number % 1000;
  if (thousands == 0) {
    return english_below_thousand(rest);
  }
  const std::string text = english_below_thousand(thousands) + " thousand";
  return rest == 0 ? text : text + (rest < 100 ? " and " : " ") + english_below_thousand(rest);
}

std::string german_number(int64_t number) {
  check(number);
  if (number == 0) {
    return "null";
  }
  return german_part(number) + (number % 100 == 1 ? "s" : "");
}

DemoPair demo_date(int64_t day, int64_t month, int64_t year) {
  require(year >= 1100 && year <= 2099 && month >= 1 && month <= 12 && day >= 1 && day <= days_of(month, year),
          "{}-{}-{} is not a date of the demo corpus: its years are 1100 to 2099", year, month, day);
  return {fmt::format("the {} of {}, {}", english_ordinal(day), at(kEnglishMonths, month - 1), english_year(year)),
          fmt::format("der {} {} {}", german_ordinal(day), at(kGermanMonths, month - 1), german_year(year))};
}

DemoPair demo_price(int64_t euros, int64_t cents) {
  require(euros >= 1 && euros <= 999 && cents >= 1 && cents <= 99, "no price of {} euros and {} cents", euros, cents);
  return {fmt::format("{} euro{} and {} cent{}", english_number(euros), euros == 1 ? "" : "s", english_number(cents),
                      cents == 1 ? "" : "s"),
          fmt::format("{} Euro und {} Cent", german_part(euros), german_part(cents))};
}

DemoPair demo_time(int64_t weekday, int64_t hour, int64_t minute) {
  require(weekday >= 0 && weekday <= 6 && hour >= 1 && hour <= 23 && minute >= 0 && minute <= 59,
          "there is no time {}:{} on weekday {}", hour, minute, weekday);
  std::string english = fmt::format("on {} at {}", at(kEnglishDays, weekday), english_number(hour));
  std::string german = fmt::format("am {} um {} Uhr", at(kGermanDays, weekday), german_part(hour));
  if (minute == 0) {
    return {english + " o'clock", german};
  }
  return {english + (minute < 10 ? " oh " : " ") + english_number(minute), german + " " + german_number(minute)};
}

namespace {

DemoPair random_number(PhiloxStream& random) {
  uint64_t limit = 10;
  for (uint64_t digits = 1 + random.below(6); digits > 1; --digits) {
    limit *= 10;
  }
  const int64_t number = static_cast<int64_t>(random.below(limit));
  return {english_number(number), german_number(number)};
}

DemoPair random_pair(PhiloxStream& random) {
  const auto between = [&random](int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random.below(static_cast<uint64_t>(last - first + 1)));
  };
  const int64_t kind = between(1, 20);
  if (kind <= 11) {
    return random_number(random);
  }
  if (kind <= 15) {
    const int64_t year = between(1100, 2099), month = between(1, 12);
    return demo_date(between(1, days_of(month, year)), month, year);
  }
  if (kind <= 18) {
    const int64_t euros = between(1, 999);
    return demo_price(euros, between(1, 99));
  }
  const int64_t weekday = between(0, 6), hour = between(1, 23);
  return demo_time(weekday, hour, between(0, 59));
}

}  // namespace

std::vector<DemoPair> demo_pairs(int64_t count, uint64_t seed) {
  require(count >= 0 && count <= kMostDemoPairs, "the demo corpus has up to {} pairs, not {}", kMostDemoPairs, count);
  constexpr uint32_t kPurpose = 0x64656D6F;  // "demo": separates it from other streams with this seed
  PhiloxStream random(seed, kPurpose);
  std::unordered_set<std::string> sources, targets;
  std::vector<DemoPair> pairs;
  while (static_cast<int64_t>(pairs.size()) < count) {
    DemoPair pair = random_pair(random);
    if (sources.contains(pair.source) || targets.contains(pair.target)) {
      continue;
    }
    sources.insert(pair.source);
    targets.insert(pair.target);
    pairs.push_back(std::move(pair));
  }
  for (size_t i = pairs.size(); i > 1; --i) {
    std::swap(pairs[i - 1], pairs[random.below(i)]);
  }
  return pairs;
}

}  // namespace tandem::data
