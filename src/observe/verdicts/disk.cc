#include "observe/verdicts/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "observe/progress.h"
#include "observe/verdicts/how_long.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/statistics.h"
#include "observe/verdicts/units.h"

namespace tandem {

namespace {

constexpr double kLeastShare = 0.02, kLeastBytes = 1e9;
constexpr double kDay = 86400;
constexpr size_t kFewestPoints = 5;

struct Space {
  std::vector<double> time, free;
  double total = kUnknown;
  std::string where;
  double now() const { return free.back(); }
};

// Of the rank whose disk has least free; a copy of a run has no newer number than the last probe's.
std::vector<Space> spaces_of(const RunData& run) {
  std::vector<Space> spaces;
  for (const RankMetrics& metrics : run.ranks) {
    Space space;
    const double start = metrics.setups.empty() ? 0 : metrics.setups.back().time;
    for (const ProbePoint& point : metrics.probes) {
      if (point.time >= start && std::isfinite(point.disk_free_bytes)) {
        space.time.push_back(point.time);
        space.free.push_back(point.disk_free_bytes);
        space.total = point.disk_total_bytes;
      }
    }
    if (!space.free.empty()) {
      space.where = setup_of(metrics).host;
      spaces.push_back(std::move(space));
    }
  }
  return spaces;
}

// Bytes a second that the disk fills with, beyond the ups and downs of checkpoints that come and go; 0 = not beyond.
double filling(const Space& space) {
  if (space.free.size() < kFewestPoints || !(space.time.back() > space.time.front())) {
    return 0;
  }
  const LineFit fit = fit_line(space.time, space.free);
  return fit.upper < 0 ? -fit.slope : 0;
}

double seconds_left(const RunData& run, const RunPlan& plan) {
  return end_of(run.main()) != nullptr ? 0 : how_long(run, plan, 0, 0).figure("seconds_left");
}

}  // namespace

Verdict disk(const RunData& run, const RunPlan& plan) {
  Verdict v{.key = "disk", .question = "Will the disk be full?", .label = "empty", .answer = ""};
  std::vector<Space> spaces = spaces_of(run);
  if (spaces.empty()) {
    v.answer = "That cannot be said: the space on the disk is not recorded.";
    return v;
  }
  const auto to_full = [](const Space& space) {
    return filling(space) > 0 ? space.now() / filling(space) : std::numeric_limits<double>::infinity();
  };
  const Space& space = *std::min_element(spaces.begin(), spaces.end(), [&](const Space& a, const Space& b) {
    return std::pair(to_full(a), a.now()) < std::pair(to_full(b), b.now());
  });
  const double rate = filling(space), until = to_full(space), left = seconds_left(run, plan);
  const double share = space.now() / space.total;
  const bool before_end = until < (std::isfinite(left) ? left : kDay);
  const std::string where = space.where.empty() ? "" : " on " + space.where;
  v.label = share < kLeastShare || space.now() < kLeastBytes ? "nearly_full" : before_end ? "filling" : "ample";
  v.confidence = space.free.size() >= 20 ? Confidence::high : Confidence::medium;
  v.add("free", space.now(), "B").add("total", space.total, "B").add("free_share", share);
  v.add("filling_rate", rate, "B/s").add("seconds_to_full", std::isfinite(until) ? until : kUnknown, "s");
  v.add("seconds_left", left, "s");
  const std::string trend = rate > 0 ? fmt::format("it fills by {} an hour and would be full in {}",
                                                   human_bytes(3600 * rate), human_duration(until))
                                     : std::string("it does not fill up beyond the ups and downs of checkpoints");
  const std::string end =
      std::isfinite(left) && left > 0 ? fmt::format(", {} of training are left", human_duration(left)) : "";
  const char* opening = v.label == "ample" ? "No" : v.label == "filling" ? "Yes" : "It nearly is";
  v.answer = fmt::format("{}: {}{} is free ({}){}; {}{}.", opening, size_text(space.now()), where, percent_text(share),
                         std::isfinite(space.total) ? " of " + human_bytes(space.total) : "", trend, end);
  return v;
}

}  // namespace tandem
