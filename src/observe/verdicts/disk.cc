#include "observe/verdicts/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/human.h"
#include "core/units.h"
#include "observe/verdicts/how_long.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/statistics.h"

namespace tandem {

namespace {

constexpr double kLeastShare = 0.02, kLeastBytes = 1e9;
constexpr double kDay = 86400;
constexpr size_t kFewestPoints = 5;
constexpr size_t kBlocks = 30;  // of probes, each as one point: files that come and go are noise within them

struct Space {
  std::vector<double> time, free;
  double total = kUnknown;
  std::string where;
  double rate = 0;     // bytes a second that it fills with, beyond the run's own checkpoints
  double to_come = 0;  // bytes that the run's own checkpoints will still take
  double now() const { return free.back(); }
  double room() const { return std::max(now() - to_come, 0.0); }
  double seconds_to_full() const {
    return room() <= 0 ? 0 : rate > 0 ? room() / rate : std::numeric_limits<double>::infinity();
  }
};

double seconds_left(const RunData& run, const RunPlan& plan) {
  return end_of(run.main()) != nullptr ? 0 : how_long(run, plan, 0, 0).figure("seconds_left");
}

// Bytes of a checkpoint of the run, which has `kept` of at most `most_kept`; 0 = not known.
double bytes_of_one(const CheckpointFacts& checkpoint) {
  const bool known = checkpoint.kept > 0 && checkpoint.kept_bytes > 0 && checkpoint.most_kept > 0;
  return known ? checkpoint.kept_bytes / checkpoint.kept : 0;
}

// By how many checkpoints the run had grown by then: each is written in a window of steps, and no more than `kept`
// stay.
double kept_at(const RankMetrics& metrics, double kept, double time) {
  const auto written = std::count_if(metrics.train.begin(), metrics.train.end(), [&](const TrainPoint& point) {
    return point.checkpoint_seconds > 0 && point.time <= time;
  });
  return std::min(static_cast<double>(written), kept);
}

// The means of neighbouring points.
std::vector<double> blocks_of(const std::vector<double>& values) {
  const size_t length = (values.size() + kBlocks - 1) / kBlocks;
  std::vector<double> means;
  for (size_t end = values.size() % length; end <= values.size(); end += length) {
    if (end >= length) {
      means.push_back(mean(std::span(values).subspan(end - length, length)));
    }
  }
  return means;
}

void add_trend(Space& space, const RankMetrics& metrics, const CheckpointFacts& checkpoint) {
  const std::vector<double> time = blocks_of(space.time), free = blocks_of(space.free);
  if (free.size() < kFewestPoints) {
    return;
  }
  const Stretch stretch = newest_stretch(time, free);
  if (!(stretch.fit.upper < 0)) {
    return;
  }
  // A line through so few steps of a stair is one of them off at most.
  const double one = bytes_of_one(checkpoint), begin = stretch.x.front(), end = stretch.x.back();
  const double own = one * (kept_at(metrics, checkpoint.kept, end) - kept_at(metrics, checkpoint.kept, begin));
  const double fallen = -stretch.fit.slope * (end - begin);
  space.rate = own > 0 && fallen <= own + one ? 0 : (fallen - own) / (end - begin);
}

// Of every rank; a copy of a run has no newer number than the last probe's.
std::vector<Space> spaces_of(const RunData& run, const CheckpointFacts& checkpoint) {
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
    if (space.free.empty()) {
      continue;
    }
    space.where = setup_of(metrics).host;
    // All checkpoints are kept by the first rank; other hosts have the latest alone.
    const bool keeps = metrics.rank == run.main().rank;
    add_trend(space, metrics, keeps ? checkpoint : CheckpointFacts{});
    if (const double one = bytes_of_one(checkpoint); one > 0 && keeps && end_of(metrics) == nullptr) {
      space.to_come = one * std::max(checkpoint.most_kept - checkpoint.kept, 0.0);
    }
    spaces.push_back(std::move(space));
  }
  return spaces;
}

std::string trend_text(const Space& space, bool ended) {
  const std::string own =
      space.to_come > 0 ? fmt::format("the checkpoints still to be kept take {}", human_bytes(space.to_come)) : "";
  if (space.room() <= 0) {
    return own.empty() ? "nothing is left" : own + ", which is more";
  }
  if (!(space.rate > 0)) {
    return (own.empty() ? "" : own + "; ") + "it does not fill up beyond the ups and downs of checkpoints";
  }
  const std::string rate = human_bytes(3600 * space.rate);
  return ended ? fmt::format("during the run it filled by {} an hour beyond the run's checkpoints", rate)
               : (own.empty() ? "" : own + "; ") + fmt::format("it fills by {} an hour and would be full in {}", rate,
                                                               human_duration(space.seconds_to_full()));
}

}  // namespace

Verdict disk(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint) {
  Verdict v{.key = "disk", .question = "Will the disk be full?", .label = "empty", .answer = ""};
  const std::vector<Space> spaces = spaces_of(run, checkpoint);
  if (spaces.empty()) {
    v.answer = "That cannot be said: the space on the disk is not recorded.";
    return v;
  }
  const Space& space = *std::min_element(spaces.begin(), spaces.end(), [](const Space& a, const Space& b) {
    return std::pair(a.seconds_to_full(), a.now()) < std::pair(b.seconds_to_full(), b.now());
  });
  const double until = space.seconds_to_full(), left = seconds_left(run, plan);
  const double share = space.now() / space.total;
  const bool ended = end_of(run.main()) != nullptr;
  const bool before_end = until < (std::isfinite(left) ? left : kDay);
  const std::string where = space.where.empty() ? "" : " on " + space.where;
  v.label = share < kLeastShare || space.now() < kLeastBytes ? "nearly_full" : before_end ? "filling" : "ample";
  v.confidence = space.free.size() >= 20 ? Confidence::high : Confidence::medium;
  v.add("free", space.now(), "B").add("total", space.total, "B").add("free_share", share);
  v.add("filling_rate", space.rate, "B/s").add("seconds_to_full", space.rate > 0 && !ended ? until : kUnknown, "s");
  v.add("checkpoints_to_come", space.to_come, "B").add("seconds_left", left, "s");
  const std::string end =
      std::isfinite(left) && left > 0 ? fmt::format("; {} of training are left", human_duration(left)) : "";
  const char* opening = v.label == "ample" ? "No" : v.label == "filling" ? "Yes" : "It nearly is";
  v.answer =
      fmt::format("{}: {}{} is free ({}){}; {}{}.", opening, size_text(space.now()), where, percent_text(share),
                  std::isfinite(space.total) ? " of " + human_bytes(space.total) : "", trend_text(space, ended), end);
  return v;
}

}  // namespace tandem
