#include "core/human.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem::inline core {

namespace {

constexpr const char* kCounts[] = {"", "k", "M", "G", "T", "P"};
constexpr const char* kBytes[] = {" B", " kB", " MB", " GB", " TB", " PB"};
constexpr const char* kBinaryBytes[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
constexpr const char* kBits[] = {" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"};
constexpr const char* kByteRates[] = {" B/s", " kB/s", " MB/s", " GB/s", " TB/s"};
constexpr const char* kFlops[] = {" FLOP/s", " kFLOP/s", " MFLOP/s", " GFLOP/s", " TFLOP/s", " PFLOP/s"};

enum class Fraction : uint8_t { always, of_larger_units };

// Three digits, never an exponent, in the largest unit in which the number is at least 1.
template <size_t N>
std::string scaled(double value, const char* const (&units)[N], Fraction fraction = Fraction::always,
                   double step = 1000) {
  if (!std::isfinite(value)) {
    return "an unknown amount";
  }
  size_t unit = 0;
  while (unit + 1 < N && std::fabs(value) >= 0.9995 * step) {
    value /= step;
    ++unit;
  }
  const double size = std::fabs(value);
  const bool whole = unit == 0 && fraction == Fraction::of_larger_units;
  return fmt::format("{:.{}f}{}", value, whole || size >= 99.95 ? 0 : size < 9.995 && size > 0 ? 2 : 1, units[unit]);
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
  return std::isfinite(count) ? scaled(count, kCounts, Fraction::of_larger_units) : "?";
}

std::string human_bytes(double bytes) {
  return std::isfinite(bytes) ? scaled(bytes, kBytes, Fraction::of_larger_units) : "? B";
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int place = static_cast<int>(digits.size()) - 3; place > first; place -= 3) {
    digits.insert(static_cast<size_t>(place), 1, ',');
  }
  return digits;
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) {
    return "an unknown time";
  }
  return seconds >= 120 ? human_duration(seconds)
         : seconds < 1  ? fmt::format("{:.3g} ms", seconds * 1e3)
                        : fmt::format("{:.3g} s", seconds);
}

std::string size_text(double bytes) {
  const std::string decimal = scaled(bytes, kBytes);
  return bytes < 1000 || !std::isfinite(bytes)
             ? decimal
             : fmt::format("{} ({})", decimal, scaled(bytes, kBinaryBytes, Fraction::always, 1024));
}

std::string bits_text(double bits_per_second) { return scaled(bits_per_second, kBits); }

std::string rate_text(double bytes_per_second) {
  return fmt::format("{} ({})", scaled(bytes_per_second, kByteRates), bits_text(8 * bytes_per_second));
}

std::string flops_text(double flops_per_second) { return scaled(flops_per_second, kFlops); }

std::string port_name(double bits_per_second) {
  const bool mega = bits_per_second < 1e9;
  return fmt::format("{:g} {} port", bits_per_second / (mega ? 1e6 : 1e9), mega ? "Mbit" : "Gbit");
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  if (percent == 0 || !std::isfinite(percent)) {
    return percent == 0 ? "0 %" : "an unknown share";
  }
  return fmt::format("{:.{}f} %", percent, percent < 0.995 ? 2 : percent < 9.95 ? 1 : 0);
}

}  // namespace tandem::inline core
