#include "core/units.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "core/human.h"

namespace tandem::inline core {

namespace {

// Three digits, never an exponent, in the largest unit that leaves at least 1.
template <size_t N>
std::string scaled(double value, const char* const (&units)[N], double step) {
  if (!std::isfinite(value)) {
    return "an unknown amount";
  }
  size_t unit = 0;
  while (unit + 1 < N && std::fabs(value) >= 0.9995 * step) {
    value /= step;
    ++unit;
  }
  const double size = std::fabs(value);
  return fmt::format("{:.{}f} {}", value, size < 9.995 && size > 0 ? 2 : size < 99.95 ? 1 : 0, units[unit]);
}

}  // namespace

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) {
    return "an unknown time";
  }
  return seconds >= 120 ? human_duration(seconds)
         : seconds < 1  ? fmt::format("{:.3g} ms", seconds * 1e3)
                        : fmt::format("{:.3g} s", seconds);
}

std::string size_text(double bytes) {
  static constexpr const char* kDecimal[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  static constexpr const char* kBinary[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return bytes < 1000 || !std::isfinite(bytes)
             ? scaled(bytes, kDecimal, 1000)
             : fmt::format("{} ({})", scaled(bytes, kDecimal, 1000), scaled(bytes, kBinary, 1024));
}

std::string bits_text(double bits_per_second) {
  static constexpr const char* kUnits[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  return scaled(bits_per_second, kUnits, 1000);
}

std::string rate_text(double bytes_per_second) {
  static constexpr const char* kUnits[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return fmt::format("{} ({})", scaled(bytes_per_second, kUnits, 1000), bits_text(8 * bytes_per_second));
}

std::string flops_text(double flops_per_second) {
  static constexpr const char* kUnits[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  return scaled(flops_per_second, kUnits, 1000);
}

std::string port_name(double bits_per_second) {
  const bool mega = bits_per_second < 1e9;
  return fmt::format("{:g} {} port", bits_per_second / (mega ? 1e6 : 1e9), mega ? "Mbit" : "Gbit");
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  if (percent == 0) {
    return "0 %";
  }
  return std::isfinite(percent) ? fmt::format("{:.{}f} %", percent,
                                              percent < 0.995  ? 2
                                              : percent < 9.95 ? 1
                                                               : 0)
                                : "an unknown share";
}

}  // namespace tandem::inline core
