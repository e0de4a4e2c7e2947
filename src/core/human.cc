#include "core/human.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace tandem::inline core {

namespace {

// Three figures and a prefix: 1234 is "1.23" and "k".
std::pair<std::string, std::string_view> scaled(double value) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::fabs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  const double size = std::fabs(value);
  const int digits = prefix == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return {fmt::format("{:.{}f}", value, digits), kPrefixes[prefix]};
}

}  // namespace

std::string human_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) {
    return "?";
  }
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) {
    return fmt::format("{} s", s);
  }
  if (s < 3600) {
    return fmt::format("{} m {:02} s", s / 60, s % 60);
  }
  if (s < 86400) {
    return fmt::format("{} h {:02} m", s / 3600, s / 60 % 60);
  }
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

std::string human_count(double count) {
  if (!std::isfinite(count)) {
    return "?";
  }
  const auto [number, prefix] = scaled(count);
  return fmt::format("{}{}", number, prefix);
}

std::string human_bytes(double bytes) {
  if (!std::isfinite(bytes)) {
    return "? B";
  }
  const auto [number, prefix] = scaled(bytes);
  return fmt::format("{} {}B", number, prefix);
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int place = static_cast<int>(digits.size()) - 3; place > first; place -= 3) {
    digits.insert(static_cast<size_t>(place), 1, ',');
  }
  return digits;
}

}  // namespace tandem::inline core
