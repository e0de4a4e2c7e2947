#include "observe/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/human.h"

namespace tandem::observe {

namespace {

// The parts of a console line in their order.
enum Part : size_t { kStep, kEpoch, kLoss, kRate, kGradient, kSpeed, kMsPerStep, kLeft, kParts };

std::array<std::string, kParts> parts_of(const TrainPoint& p, int64_t last_step, double seconds_left) {
  const std::string last = last_step > 0 ? fmt::format("/{}", grouped(last_step)) : "";
  const double ms_per_step = p.step_seconds() / p.steps * 1e3;
  return {fmt::format("step {}{}", grouped(p.step), last),
          fmt::format("epoch {:.2f}", p.epoch),
          fmt::format("loss {:.4f}", p.loss),
          fmt::format("lr {:.2e}", p.learning_rate),
          fmt::format("grad {:.3g}", p.gradient_norm),
          fmt::format("{} tok/s", human_count(p.target_tokens / p.step_seconds())),
          fmt::format("{:.{}f} ms/step", ms_per_step, ms_per_step < 100 ? 1 : 0),
          fmt::format("ETA {}", human_duration(seconds_left))};
}

}  // namespace

std::string console_line(const TrainPoint& window, int64_t last_step, double seconds_left) {
  return fmt::format("{}", fmt::join(parts_of(window, last_step, seconds_left), "  "));
}

std::string progress_bar(double share, int width) {
  const double part = share >= 0 ? std::min(share, 1.0) : 0;  // NaN: 0
  const auto full = static_cast<int>(std::floor(part * width));
  return fmt::format("[{:#<{}}{:-<{}}] {:3} %", "", full, "", width - full, static_cast<int>(std::floor(part * 100)));
}

std::string status_line(const TrainPoint& window, int64_t last_step, double seconds_left, int columns) {
  const auto most = static_cast<size_t>(std::max(columns, 0));
  const auto known = parts_of(window, last_step, seconds_left);
  std::vector<std::string> parts(known.begin(), known.end());
  if (last_step > 0) {
    parts[kStep].insert(0, progress_bar(static_cast<double>(window.step) / static_cast<double>(last_step)) + " ");
  }
  std::string line = fmt::format("{}", fmt::join(parts, "  "));
  for (const Part dispensable : {kGradient, kRate, kMsPerStep, kEpoch, kSpeed, kLoss}) {
    if (line.size() <= most) {
      return line;
    }
    std::erase(parts, known[dispensable]);
    line = fmt::format("{}", fmt::join(parts, "  "));
  }
  return line.size() <= most ? line : fmt::format("{}  {}", known[kStep], known[kLeft]).substr(0, most);
}

}  // namespace tandem::observe
