#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "observe/verdicts/exchange.h"

namespace tandem::observe {

namespace {

constexpr size_t kWarmUp = 5;  // number of windows from which on the first is left out

double start_of(const RankMetrics& metrics) {
  return metrics.setups.empty() ? -std::numeric_limits<double>::infinity() : metrics.setups.back().time;
}

std::vector<TrainPoint> windows_of(const RankMetrics& metrics) {
  std::vector<TrainPoint> windows;
  for (const TrainPoint& point : metrics.since_start()) {
    if (point.steps > 0 && point.step_seconds() > 0) {
      windows.push_back(point);
    }
  }
  if (windows.size() >= kWarmUp) {
    windows.erase(windows.begin());
  }
  return windows;
}

// The time in which steps ran, from windows without a pause only: where in a window a pause was is not recorded.
class StepSeconds {
 public:
  explicit StepSeconds(std::span<const TrainPoint> windows) : windows_(windows) {}

  // Seconds of steps between two moments, which must not be before those of the last call.
  double within(double begin, double end) {
    double seconds = 0;
    for (; !windows_.empty(); windows_ = windows_.subspan(1)) {
      const TrainPoint& window = windows_.front();
      if (!(window.validation_seconds + window.checkpoint_seconds > 0)) {
        const double from = std::max({window.time - window.step_seconds(), begin, before_});
        seconds += std::max(0.0, std::min(window.time, end) - from);
      }
      if (window.time > end) {
        break;
      }
      before_ = window.time;
    }
    return seconds;
  }

 private:
  std::span<const TrainPoint> windows_;
  double before_ = -std::numeric_limits<double>::infinity();  // the end of the window before the first
};

}  // namespace

std::string RankClock::name() const {
  return setup.host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, setup.host);
}

std::vector<RankClock> clocks_of(const RunData& run) {
  std::vector<RankClock> clocks;
  for (const RankMetrics& metrics : run.ranks) {
    RankClock clock{.rank = metrics.rank, .setup = setup_of(metrics), .windows = windows_of(metrics)};
    clock.sum = total(clock.windows);
    if (clock.sum.steps > 0) {
      clock.probe = probed(metrics);
      clocks.push_back(std::move(clock));
    }
  }
  return clocks;
}

int ranks_of(const RunData& run) {
  double ranks = static_cast<double>(run.ranks.size());
  for (const RankMetrics& metrics : run.ranks) {
    const double stated = setup_of(metrics).ranks;
    ranks = stated > ranks && stated <= 1e6 ? stated : ranks;
  }
  return static_cast<int>(ranks);
}

ProbePoint probed(const RankMetrics& metrics) {
  ProbePoint sum;
  for (const ProbePoint& point : metrics.probes) {
    if (point.time >= start_of(metrics)) {
      sum = merged(sum, point);
    }
  }
  return sum;
}

ProbePoint probed_in_steps(const RankMetrics& metrics) {
  constexpr double kAll = 0.95, kFew = 0.05;  // share of a probe's time; share of all time
  StepSeconds steps(metrics.since_start());
  ProbePoint all, in_steps;
  double before = start_of(metrics);
  for (const ProbePoint& point : metrics.probes) {
    if (point.time >= before) {
      const double seconds = steps.within(std::max(point.time - point.seconds, before), point.time);
      all = merged(all, point);
      in_steps = seconds >= kAll * point.seconds ? merged(in_steps, point) : in_steps;
      before = point.time;
    }
  }
  return in_steps.seconds > kFew * all.seconds ? in_steps : all;
}

}  // namespace tandem::observe
