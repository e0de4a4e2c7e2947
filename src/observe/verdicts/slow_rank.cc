#include "observe/verdicts/slow_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/units.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/statistics.h"
#include "observe/verdicts/waits.h"

namespace tandem {

namespace {

constexpr size_t kFewestWindows = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Standard error of a rank's mean own time of a step.
double error_of(const RankClock& clock) {
  std::vector<double> own;
  for (const TrainPoint& point : clock.windows) {
    own.push_back((point.compute_seconds + point.data_seconds) / point.steps);
  }
  return deviation(own) / std::sqrt(static_cast<double>(own.size()));
}

template <class Value>
double median_of_others(const std::vector<RankClock>& clocks, const RankClock& one, const Value& value) {
  std::vector<double> values;
  for (const RankClock& clock : clocks) {
    if (clock.rank != one.rank && std::isfinite(value(clock))) {
      values.push_back(value(clock));
    }
  }
  return values.empty() ? kUnknown : median(std::move(values));
}

ProbePoint probe_of(const RunData& run, int rank) {
  for (const RankMetrics& metrics : run.ranks) {
    if (metrics.rank == rank) {
      return probed(metrics);
    }
  }
  return {};
}

// What speaks for it, as far as it was measured.
std::string cause_text(const RunData& run, const std::vector<RankClock>& clocks, const RankClock& slow, double excess) {
  const double data = slow.data - median_of_others(clocks, slow, [](const RankClock& c) { return c.data; });
  if (data > excess / 2) {
    return fmt::format("it waits {} longer for data", seconds_text(data));
  }
  const ProbePoint probe = probe_of(run, slow.rank);
  if (probe.seconds > 0 && probe.gpu_throttled_seconds / probe.seconds > kWorth) {
    return fmt::format("its GPU was slowed down for heat or power {} of the time",
                       percent_text(probe.gpu_throttled_seconds / probe.seconds));
  }
  const double clock =
      median_of_others(clocks, slow, [&](const RankClock& c) { return probe_of(run, c.rank).gpu_sm_clock_mhz; });
  if (probe.gpu_sm_clock_mhz < (1 - kWorth / 2) * clock) {
    return fmt::format("its GPU runs at {:.0f} MHz, the others' at {:.0f}", probe.gpu_sm_clock_mhz, clock);
  }
  return "its compute is slower";
}

// Its own time of a step in the newest third of its windows.
double own_lately(const RankClock& clock) {
  double seconds = 0, steps = 0;
  for (size_t i = clock.windows.size() - (clock.windows.size() + 2) / 3; i < clock.windows.size(); ++i) {
    seconds += clock.windows[i].compute_seconds + clock.windows[i].data_seconds;
    steps += clock.windows[i].steps;
  }
  return seconds / steps;
}

bool over_by_now(const std::vector<RankClock>& clocks, const RankClock& slow) {
  return own_lately(slow) - median_of_others(clocks, slow, own_lately) < kWorth / 2 * slow.step;
}

std::string slow_text(const RunData& run, const std::vector<RankClock>& clocks, const RankClock& slow, double others) {
  const double excess = slow.own() - others;
  const auto as_slow = std::count_if(clocks.begin(), clocks.end(), [&](const RankClock& clock) {
    return clock.own() - others > excess / 2;  // nearer to it than to the others
  });
  return fmt::format(
      "Yes: {}{} takes {} for its part of a step, the others {}; {}; without {} a step would be {} "
      "shorter ({}){}.",
      slow.name(), as_slow > 1 ? fmt::format(" (and {} more like it)", as_slow - 1) : "", seconds_text(slow.own()),
      seconds_text(others), cause_text(run, clocks, slow, excess), as_slow > 1 ? "them" : "it", seconds_text(excess),
      percent_text(excess / slow.step),
      over_by_now(clocks, slow) ? "; in the newest third of the steps it was as fast as the others" : "");
}

// No rank is slow by itself, but another one may be in every window.
std::string even_text(const std::vector<RankClock>& clocks, const RankClock& slow, double others) {
  const Waits w = waits_of(clocks);
  const double share = w.others / w.step;
  return fmt::format(
      "No{}: the slowest, {}, takes {} for its part of a step, the others {}, a difference of {} of a "
      "step{}.",
      share >= kWorth ? " single one" : "", slow.name(), seconds_text(slow.own()), seconds_text(others),
      percent_text(std::max((slow.own() - others) / slow.step, 0.0)),
      share >= kWorth
          ? fmt::format("; but ranks wait {} of a step for whichever is slowest at the time", percent_text(share))
          : "");
}

bool too_little(Verdict& v, const RunData& run, const std::vector<RankClock>& clocks) {
  if (ranks_of(run) <= 1) {
    v.label = "single";
    v.confidence = clocks.empty() ? Confidence::low : Confidence::high;
    v.answer = "No: the run has one rank.";
  } else if (clocks.size() < 2) {
    v.answer = "That cannot be said: the metrics of one rank alone were found.";
  } else if (std::any_of(clocks.begin(), clocks.end(),
                         [](const RankClock& c) { return c.windows.size() < kFewestWindows; })) {
    v.label = "too_early";
    v.answer = fmt::format("That cannot be said yet: noise wants {} windows of steps on each rank.", kFewestWindows);
  } else {
    return false;
  }
  return true;
}

}  // namespace

Verdict slow_rank(const RunData& run) {
  Verdict v{.key = "slow_rank", .question = "Does one rank hold up the others?", .label = "empty", .answer = ""};
  const std::vector<RankClock> clocks = clocks_of(run);
  if (too_little(v, run, clocks)) {
    return v;
  }
  const RankClock& slow = *std::max_element(clocks.begin(), clocks.end(),
                                            [](const RankClock& a, const RankClock& b) { return a.own() < b.own(); });
  const double others = median_of_others(clocks, slow, [](const RankClock& c) { return c.own(); });
  const double noise = std::hypot(error_of(slow), median_of_others(clocks, slow, error_of));
  const double excess = slow.own() - others;
  const auto freedom = static_cast<int>(slow.windows.size()) - 1;
  const bool beyond = excess / slow.step >= kWorth && excess > student_t_995(freedom) * noise;
  v.label = beyond ? "slow_rank" : "even";
  v.confidence = confidence_by(slow.windows.size());
  v.add("slowest_rank", slow.rank).add("slowest_own", slow.own(), "s").add("median_own_of_others", others, "s");
  v.add("lost_per_step", excess, "s").add("lost_share", excess / slow.step).add("step", slow.step, "s");
  v.answer = beyond ? slow_text(run, clocks, slow, others) : even_text(clocks, slow, others);
  if (const int ranks = ranks_of(run); static_cast<int>(clocks.size()) < ranks && !beyond) {
    v.confidence = Confidence::low;
    v.answer += fmt::format(" Of {} ranks {} were read: another may be the one.", ranks, clocks.size());
  }
  return v;
}

}  // namespace tandem
