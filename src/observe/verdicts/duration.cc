#include "observe/verdicts/duration.h"

#include <algorithm>
#include <cmath>

#include "observe/verdicts/statistics.h"

namespace tandem::observe {

namespace {

constexpr size_t kBlocks = 8;
constexpr size_t kFewestRecords = 3;  // records needed to know their spread
// Seconds without a record after which a trainer is taken for stopped: longer than a validation should take.
constexpr double kSilence = 900;

// The 95 % error of `mean_pause`, the pauses' seconds per step, from how much pauses differ in length; with a single
// pause it is as large as the mean.
double pause_error(const RankMetrics& m, double mean_pause) {
  std::vector<double> pauses;
  for (const TrainPoint& point : m.train) {
    if (const double pause = point.pause_seconds(); pause > 0) {
      pauses.push_back(pause);
    }
  }
  if (pauses.size() < 2) {
    return mean_pause;
  }
  const double n = static_cast<double>(pauses.size());
  return mean_pause * student_t_975(static_cast<int>(n) - 1) * deviation(pauses) / mean(pauses) / std::sqrt(n);
}

// What is left if `steps` more are planned.
Left left_by_steps(double steps, const Pace& pace) {
  steps = std::max(steps, 0.0);
  const double seconds = steps * pace.seconds;
  // The mean of the coming steps varies as the blocks do, and the mean of the past ones is not exact either.
  const double of_steps =
      pace.has_error() ? student_t_975(pace.blocks - 1) * pace.error *
                             std::sqrt(1.0 / pace.blocks + std::min(1.0, pace.block_steps / std::max(steps, 1.0)))
                       : pace.seconds / 2;
  const double spread = std::hypot(of_steps, pace.pause_error);
  return {steps, seconds, std::max(seconds - spread * steps, 0.0), seconds + spread * steps};
}

Left left_of(const RankMetrics& m, const RunPlan& plan, const Pace& pace) {
  Left left;
  const auto earlier = [&](const Left& other) {
    left = other.seconds < left.seconds || std::isnan(left.seconds) ? other : left;
  };
  const double step = static_cast<double>(m.last_step());
  if (plan.max_steps > 0) {
    earlier(left_by_steps(static_cast<double>(plan.max_steps) - step, pace));
  }
  const double epoch = m.train.empty() ? kUnknown : m.train.back().epoch;
  if (plan.max_epochs > 0 && epoch > 0) {
    earlier(left_by_steps((plan.max_epochs - epoch) * step / epoch, pace));
  }
  const double minutes = std::max(plan.max_minutes * 60 - m.elapsed_seconds(), 0.0);
  if (plan.max_minutes > 0 && !(minutes >= left.seconds)) {
    left = {minutes / pace.seconds, minutes, minutes, minutes};
  }
  return left;
}

// The details of the last `end` event, unless the run was continued or started again after it.
std::optional<std::string> end_of(const RankMetrics& m) {
  const auto event =
      std::find_if(m.events.rbegin(), m.events.rend(), [](const EventPoint& e) { return e.event == "end"; });
  const bool goes_on = event == m.events.rend() || (!m.train.empty() && m.train.back().step > event->step) ||
                       (!m.setups.empty() && m.setups.back().time > event->time);
  return goes_on ? std::nullopt : std::optional(event->details);
}

using Weighted = std::vector<std::pair<double, double>>;  // seconds a step, steps

// Median of the last quarter over that of the second (the first has the warm-up); 1 if not slower beyond noise.
double slowdown_of(const Weighted& times) {
  const size_t quarter = times.size() / 4;
  if (quarter < 4) {
    return 1;
  }
  const auto quantile = [&](size_t first, double share) {
    Weighted alike;
    for (size_t i = first; i < first + quarter; ++i) {
      alike.emplace_back(times[i].first, 1);
    }
    return weighted_quantile(std::move(alike), share);
  };
  // Standard error of a median, from the quartiles: 1.2533 * (q3 - q1) / 1.349 / sqrt(n).
  const auto error = [&](size_t first) {
    return 0.929 * (quantile(first, 0.75) - quantile(first, 0.25)) / std::sqrt(static_cast<double>(quarter));
  };
  const size_t early = quarter, late = times.size() - quarter;
  const double before = quantile(early, 0.5), after = quantile(late, 0.5);
  const double noise = std::hypot(error(early), error(late));
  return after - before > student_t_990(2 * static_cast<int>(quarter) - 2) * noise ? after / before : 1;
}

}  // namespace

Pace pace_of(const RankMetrics& m) {
  Pace pace;
  const TrainPoint all = total(m.train);
  if (!(all.steps > 0)) {
    return pace;
  }
  pace.pause_error = pause_error(m, all.pause_seconds() / all.steps);
  const std::span<const TrainPoint> started = m.since_start().size() >= kFewestRecords ? m.since_start() : m.train;
  const size_t tail = std::min(std::max<size_t>(started.size() / 5, 10), started.size());
  const std::span<const TrainPoint> recent = started.last(tail);
  const size_t length = std::max<size_t>(tail / kBlocks, 1);
  std::vector<double> blocks;
  double steps = 0;
  for (size_t i = 0; i + length <= tail; i += length) {
    const TrainPoint block = total(recent.subspan(i, length));
    if (block.steps > 0) {
      blocks.push_back(block.step_seconds() / block.steps);
      steps += block.steps;
    }
  }
  const TrainPoint now = total(recent);
  pace.seconds = (now.steps > 0 ? now.step_seconds() / now.steps : all.step_seconds() / all.steps) +
                 all.pause_seconds() / all.steps;
  pace.blocks = static_cast<int>(blocks.size());
  if (pace.has_error()) {
    pace.error = deviation(blocks);
    pace.block_steps = steps / pace.blocks;
  }
  return pace;
}

Duration duration_of(const RankMetrics& m, const RunPlan& plan, double now, double price) {
  Duration d{.trained = !m.train.empty(), .pace = pace_of(m), .left = {}, .end = end_of(m), .price = price};
  if (!d.trained) {
    return d;
  }
  const TrainPoint seen = total(m.train);
  // A stretch between the last record and a resume is not recorded: it is taken to be like the mean.
  const double whole = seen.steps > 0 ? static_cast<double>(m.last_step()) / seen.steps : 0;
  d.steps = m.last_step();
  d.elapsed = m.elapsed_seconds();
  d.pairs = seen.pairs * whole, d.source_tokens = seen.source_tokens * whole;
  d.target_tokens = seen.target_tokens * whole;
  d.epochs = m.train.back().epoch;
  d.left = left_of(m, plan, d.pace);
  d.silence = now > 0 ? now - m.last_time() : 0;
  d.many_hosts = setup_of(m).nodes > 1;
  return d;
}

StepTimes step_times_of(const RankMetrics& m) {
  StepTimes t;
  Weighted times;
  for (const TrainPoint& point : m.train) {
    if (point.steps > 0 && point.step_seconds() > 0) {
      times.emplace_back(point.step_seconds() / point.steps, point.steps);
    }
  }
  t.records = times.size();
  if (times.empty()) {
    return t;
  }
  t.sums = total(m.train);
  t.sums.validation_seconds = m.validation_seconds();
  t.slowdown = slowdown_of(times);
  t.median = weighted_quantile(times, 0.5), t.p95 = weighted_quantile(times, 0.95);
  // Another start may be on other machines, and then the mean of all steps describes none of them.
  const std::span<const TrainPoint> started = m.since_start();
  const TrainPoint sums = total(started);
  const double now = sums.step_seconds() / sums.steps;
  if (started.size() < m.train.size() && started.size() >= kFewestRecords && std::fabs(now / t.mean() - 1) > kWorth) {
    t.started_at = m.setups.back().step;
    t.since_start = now;
  }
  return t;
}

Verdict how_long(const Duration& d) {
  if (!d.trained) {
    return {.label = "empty"};
  }
  Verdict v{.label = "ended", .confidence = Confidence::high};
  v.add("steps", static_cast<double>(d.steps)).add("elapsed_seconds", d.elapsed, "s").add("pairs", d.pairs);
  v.add("source_tokens", d.source_tokens).add("target_tokens", d.target_tokens);
  v.add("epochs", d.epochs).add("seconds_per_step", d.pace.seconds, "s");
  if (d.has_price()) {
    v.add("cost", d.cost(d.elapsed));
  }
  if (d.ended()) {
    return v;
  }
  v.add("steps_left", d.left.steps).add("seconds_left", d.left.seconds, "s");
  v.add("seconds_left_low", d.left.low, "s").add("seconds_left_high", d.left.high, "s");
  v.add("silence_seconds", d.silence, "s");
  if (d.has_price()) {
    v.add("cost_in_all", d.cost(d.elapsed + d.left.seconds));
  }
  v.label = d.silence > std::max(kSilence, 20 * d.pace.seconds) ? "silent" : "running";
  v.confidence = !d.left.known() || !d.pace.has_error()      ? Confidence::low
                 : d.left.high - d.left.low > d.left.seconds ? Confidence::medium
                                                             : Confidence::high;
  return v;
}

Verdict step_time(const StepTimes& t) {
  if (t.records == 0) {
    return {.label = "empty"};
  }
  const TrainPoint& sums = t.sums;
  Verdict v{.label = t.slowdown > 1 + kWorth    ? "slowing_down"
                     : t.data_share() > kWorth  ? "slow_data"
                     : t.pause_share() > kWorth ? "evaluation_heavy"
                                                : "steady",
            .confidence = confidence_by(t.records)};
  v.add("mean", t.mean(), "s").add("median", t.median, "s").add("p95", t.p95, "s");
  v.add("mean_with_pauses", t.with_pauses(), "s").add("steps_per_second", 1 / t.mean(), "1/s");
  v.add("steps_per_second_with_pauses", 1 / t.with_pauses(), "1/s");
  v.add("target_tokens_per_second", sums.target_tokens / sums.step_seconds(), "1/s");
  v.add("pairs_per_step", sums.pairs / sums.steps).add("target_tokens_per_step", sums.target_tokens / sums.steps);
  v.add("data_share", t.data_share()).add("communication_share", t.communication_share());
  v.add("validation_share", sums.validation_seconds / t.all())
      .add("checkpoint_share", sums.checkpoint_seconds / t.all());
  return v.add("slowdown", t.slowdown).add("steps_per_record", t.steps_per_record());
}

}  // namespace tandem::observe
