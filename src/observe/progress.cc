#include "observe/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/human.h"

namespace tandem {

namespace {

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
