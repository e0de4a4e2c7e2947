#include "observe/verdicts/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/human.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/statistics.h"

namespace tandem {

namespace {

constexpr size_t kFewestRecords = 3;

struct Sums {
  double steps = 0, step_seconds = 0, communication = 0, data = 0, validation = 0, checkpoint = 0, pairs = 0,
         target_tokens = 0;
  double all() const { return step_seconds + validation + checkpoint; }
};

Sums sums_of(std::span<const TrainPoint> points) {
  Sums s;
  for (const TrainPoint& point : points) {
    s.steps += point.steps;
    s.step_seconds += point.step_seconds();
    s.communication += point.communication_seconds;
    s.data += point.data_seconds;
    s.validation += point.validation_seconds;
    s.checkpoint += point.checkpoint_seconds;
    s.pairs += point.pairs;
    s.target_tokens += point.target_tokens;
  }
  return s;
}

struct Times {
  std::vector<std::pair<double, double>> weighted;  // seconds a step, steps
  std::vector<double> plain;
};

Times times_of(std::span<const TrainPoint> points) {
  Times times;
  for (const TrainPoint& point : points) {
    if (point.steps > 0 && point.step_seconds() > 0) {
      times.weighted.emplace_back(point.step_seconds() / point.steps, point.steps);
      times.plain.push_back(point.step_seconds() / point.steps);
    }
  }
  return times;
}

// Medians of the second and the last quarter (the first has the warm-up), how many times slower; 1 = not beyond noise.
double slowdown(const std::vector<double>& times) {
  const size_t quarter = times.size() / 4;
  if (quarter < 4) {
    return 1;
  }
  const std::span<const double> early = std::span(times).subspan(quarter, quarter),
                                late = std::span(times).last(quarter);
  const auto quantile = [](std::span<const double> values, double share) {
    std::vector<std::pair<double, double>> weighted;
    for (const double value : values) {
      weighted.emplace_back(value, 1);
    }
    return weighted_quantile(std::move(weighted), share);
  };
  const double before = quantile(early, 0.5), after = quantile(late, 0.5);
  // Standard error of a median, from the quartiles: 1.2533 * (q3 - q1) / 1.349 / sqrt(n).
  const auto error = [&](std::span<const double> values) {
    return 0.929 * (quantile(values, 0.75) - quantile(values, 0.25)) / std::sqrt(static_cast<double>(values.size()));
  };
  const double noise = std::hypot(error(early), error(late));
  return after - before > student_t_990(2 * static_cast<int>(quarter) - 2) * noise ? after / before : 1;
}

std::string milliseconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

std::string record_text(double steps) {
  return steps < 1.5 ? std::string("each by itself") : fmt::format("means of {:.0f} steps each", steps);
}

// Another start may be on other machines, and the mean of all steps is then that of none.
std::string start_text(const RankMetrics& m, double mean_step) {
  const std::span<const TrainPoint> started = m.since_start();
  const Sums sums = sums_of(started);
  const double now = sums.step_seconds / sums.steps;
  return started.size() < m.train.size() && started.size() >= kFewestRecords && std::fabs(now / mean_step - 1) > kWorth
             ? fmt::format("; since the last start, at step {}, a step takes {}", grouped(m.setups.back().step),
                           milliseconds(now))
             : "";
}

}  // namespace

Verdict step_time(const RunData& run) {
  Verdict v{.key = "step_time", .question = "How long is a step?", .label = "empty", .answer = ""};
  const std::vector<TrainPoint>& train = run.main().train;
  Sums sums = sums_of(train);
  sums.validation = run.main().validation_seconds();
  Times times = times_of(train);
  if (times.plain.empty()) {
    v.answer = "No step time is recorded yet.";
    return v;
  }
  const double mean_step = sums.step_seconds / sums.steps, with_pauses = sums.all() / sums.steps;
  const double data_share = sums.data / sums.step_seconds;
  const double pause_share = (sums.validation + sums.checkpoint) / sums.all();
  const double slower = slowdown(times.plain);
  v.add("mean", mean_step, "s").add("median", weighted_quantile(times.weighted, 0.5), "s");
  v.add("p95", weighted_quantile(times.weighted, 0.95), "s").add("mean_with_pauses", with_pauses, "s");
  v.add("steps_per_second", 1 / mean_step, "1/s").add("steps_per_second_with_pauses", 1 / with_pauses, "1/s");
  v.add("target_tokens_per_second", sums.target_tokens / sums.step_seconds, "1/s");
  v.add("pairs_per_step", sums.pairs / sums.steps).add("target_tokens_per_step", sums.target_tokens / sums.steps);
  v.add("data_share", data_share).add("communication_share", sums.communication / sums.step_seconds);
  v.add("validation_share", sums.validation / sums.all());
  v.add("checkpoint_share", sums.checkpoint / sums.all()).add("slowdown", slower);
  v.add("steps_per_record", sums.steps / static_cast<double>(times.plain.size()));
  v.label = slower > 1 + kWorth    ? "slowing_down"
            : data_share > kWorth  ? "slow_data"
            : pause_share > kWorth ? "evaluation_heavy"
                                   : "steady";
  v.confidence = times.plain.size() >= 20  ? Confidence::high
                 : times.plain.size() >= 5 ? Confidence::medium
                                           : Confidence::low;
  v.answer = fmt::format(
      "A step (one update, {} pairs with {} target tokens) takes {} on average ({:.3g} steps/s), median {}, 95 % below "
      "{} ({}); with validations and checkpoints {} ({:.3g} steps/s); waiting for data is "
      "{:.1f} % of a step{}, validations and checkpoints {:.1f} % of the run{}{}.",
      human_count(sums.pairs / sums.steps), human_count(sums.target_tokens / sums.steps), milliseconds(mean_step),
      1 / mean_step, milliseconds(v.figure("median")), milliseconds(v.figure("p95")),
      record_text(v.figure("steps_per_record")), milliseconds(with_pauses), 1 / with_pauses, 100 * data_share,
      sums.communication > 0
          ? fmt::format(", for the network and other ranks {:.1f} %", 100 * sums.communication / sums.step_seconds)
          : "",
      100 * pause_share,
      slower > 1 + kWorth ? fmt::format("; steps became slower, {:.2f} times what they took early on", slower) : "",
      start_text(run.main(), mean_step));
  return v;
}

}  // namespace tandem
