#include "observe/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace tandem {

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

// The parts of a console line in their order.
enum Field : size_t { kStep, kEpoch, kLoss, kRate, kGradient, kSpeed, kMsPerStep, kLeft, kFields };

std::array<std::string, kFields> fields(const Progress& p) {
  const std::string last = p.last_step > 0 ? fmt::format("/{}", grouped(p.last_step)) : "";
  return {fmt::format("step {}{}", grouped(p.step), last),
          fmt::format("epoch {:.2f}", p.epoch),
          fmt::format("loss {:.4f}", p.loss),
          fmt::format("lr {:.2e}", p.learning_rate),
          fmt::format("grad {:.3g}", p.gradient_norm),
          fmt::format("{} tok/s", human_count(p.tokens_per_second)),
          fmt::format("{:.{}f} ms/step", p.ms_per_step, p.ms_per_step < 100 ? 1 : 0),
          fmt::format("ETA {}", human_duration(p.seconds_left))};
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

std::string console_line(const Progress& p) { return fmt::format("{}", fmt::join(fields(p), "  ")); }

std::string progress_bar(double share, int width) {
  const double part = share >= 0 ? std::min(share, 1.0) : 0;  // NaN: 0
  const auto full = static_cast<int>(std::floor(part * width));
  return fmt::format("[{:#<{}}{:-<{}}] {:3} %", "", full, "", width - full, static_cast<int>(std::floor(part * 100)));
}

std::string status_line(const Progress& p, int columns) {
  const auto most = static_cast<size_t>(std::max(columns, 0));
  const auto known = fields(p);
  std::vector<std::string> parts(known.begin(), known.end());
  if (p.last_step > 0) {
    parts[kStep].insert(0, progress_bar(static_cast<double>(p.step) / static_cast<double>(p.last_step)) + " ");
  }
  std::string line = fmt::format("{}", fmt::join(parts, "  "));
  for (const Field dispensable : {kGradient, kRate, kMsPerStep, kEpoch, kSpeed, kLoss}) {
    if (line.size() <= most) {
      return line;
    }
    std::erase(parts, known[dispensable]);
    line = fmt::format("{}", fmt::join(parts, "  "));
  }
  return line.size() <= most ? line : fmt::format("{}  {}", known[kStep], known[kLeft]).substr(0, most);
}

}  // namespace tandem
