#include "observe/verdicts/how_long.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/human.h"
#include "observe/verdicts/statistics.h"

namespace tandem {

namespace {

constexpr size_t kBlocks = 8;
constexpr size_t kFewestRecords = 3;  // to know their spread
// A trainer that writes nothing for this long is not believed to run: longer than a validation should take.
constexpr double kSilence = 900;

struct Totals {
  double steps = 0, step_seconds = 0, pauses = 0, pairs = 0, source_tokens = 0, target_tokens = 0;
};

Totals totals_of(std::span<const TrainPoint> points) {
  Totals t;
  for (const TrainPoint& point : points) {
    t.steps += point.steps;
    t.step_seconds += point.step_seconds();
    t.pauses += point.validation_seconds + point.checkpoint_seconds;
    t.pairs += point.pairs;
    t.source_tokens += point.source_tokens;
    t.target_tokens += point.target_tokens;
  }
  return t;
}

// Step time of the newest fifth of the run (or 10 records) since it was last started, perhaps on other machines, in
// blocks; pauses are rare, so they are of the whole run.
struct Pace {
  double seconds = kUnknown;  // a step, pauses counted
  double error = kUnknown;    // of the mean of `block_steps` steps; NaN: too few records
  double block_steps = 0;     //
  double pause_error = 0;     // 95 % error of what pauses add to a step
  int blocks = 0;
};

// Pauses differ in length: the 95 % error of their mean, for `mean_pause` seconds a step; one alone may be wholly
// wrong.
double pause_error(const RankMetrics& m, double mean_pause) {
  std::vector<double> pauses;
  for (const TrainPoint& point : m.train) {
    if (const double pause = point.validation_seconds + point.checkpoint_seconds; pause > 0) {
      pauses.push_back(pause);
    }
  }
  if (pauses.size() < 2) {
    return mean_pause;
  }
  const double n = static_cast<double>(pauses.size());
  return mean_pause * student_t_975(static_cast<int>(n) - 1) * deviation(pauses) / mean(pauses) / std::sqrt(n);
}

Pace pace_of(const RankMetrics& m) {
  Pace pace;
  const Totals all = totals_of(m.train);
  if (!(all.steps > 0)) {
    return pace;
  }
  pace.pause_error = pause_error(m, all.pauses / all.steps);
  const std::span<const TrainPoint> started = m.since_start().size() >= kFewestRecords ? m.since_start() : m.train;
  const size_t tail = std::min(std::max<size_t>(started.size() / 5, 10), started.size());
  const std::span<const TrainPoint> recent = started.last(tail);
  const size_t length = std::max<size_t>(tail / kBlocks, 1);
  std::vector<double> blocks;
  double steps = 0;
  for (size_t i = 0; i + length <= tail; i += length) {
    const Totals block = totals_of(recent.subspan(i, length));
    if (block.steps > 0) {
      blocks.push_back(block.step_seconds / block.steps);
      steps += block.steps;
    }
  }
  const Totals now = totals_of(recent);
  pace.seconds = (now.steps > 0 ? now.step_seconds / now.steps : all.step_seconds / all.steps) + all.pauses / all.steps;
  pace.blocks = static_cast<int>(blocks.size());
  if (pace.blocks >= 3) {
    pace.error = deviation(blocks);
    pace.block_steps = steps / pace.blocks;
  }
  return pace;
}

struct Left {
  double steps = kUnknown;    // NaN: the end is given by time, or not at all
  double seconds = kUnknown;  //
  double low = kUnknown, high = kUnknown;
};

Left left_of(const RankMetrics& m, const RunPlan& plan, const Pace& pace) {
  Left left;
  const double step = static_cast<double>(m.last_step());
  const auto by_steps = [&](double steps) {
    steps = std::max(steps, 0.0);
    const double seconds = steps * pace.seconds;
    if (seconds < left.seconds || std::isnan(left.seconds)) {
      // The mean of what is left strays as the blocks do, and the mean of the past is not exact either.
      const double of_steps =
          pace.blocks >= 3 ? student_t_975(pace.blocks - 1) * pace.error *
                                 std::sqrt(1.0 / pace.blocks + std::min(1.0, pace.block_steps / std::max(steps, 1.0)))
                           : pace.seconds / 2;
      const double spread = std::hypot(of_steps, pace.pause_error);
      left = {steps, seconds, std::max(seconds - spread * steps, 0.0), seconds + spread * steps};
    }
  };
  if (plan.max_steps > 0) {
    by_steps(static_cast<double>(plan.max_steps) - step);
  }
  const double epoch = m.train.empty() ? kUnknown : m.train.back().epoch;
  if (plan.max_epochs > 0 && epoch > 0) {
    by_steps((plan.max_epochs - epoch) * step / epoch);
  }
  const double minutes = std::max(plan.max_minutes * 60 - m.elapsed_seconds(), 0.0);
  if (plan.max_minutes > 0 && !(minutes >= left.seconds)) {
    left = {minutes / pace.seconds, minutes, minutes, minutes};
  }
  return left;
}

std::string amount_text(const RankMetrics& m, const Totals& seen) {
  const double epoch = m.train.back().epoch;
  return fmt::format("{} pairs, {} source and {} target tokens{}", human_count(seen.pairs),
                     human_count(seen.source_tokens), human_count(seen.target_tokens),
                     std::isfinite(epoch) ? fmt::format(", {:.2f} epochs", epoch) : "");
}

std::string cost_text(const RankMetrics& m, double seconds, double price) {
  const std::string hosts = setup_of(m).nodes > 1 ? " of all hosts" : "";
  return price > 0 ? fmt::format("; cost {:.2f} at {:g} an hour{}", seconds / 3600 * price, price, hosts) : "";
}

std::string band_text(const Left& left) {
  return left.high > left.low ? fmt::format(" ({} to {})", human_duration(left.low), human_duration(left.high)) : "";
}

// What is left of a run that has not ended, after `done`.
void add_rest(Verdict& v, const RankMetrics& m, const Pace& pace, const Left& left, const std::string& done,
              double silence, double price) {
  const double elapsed = m.elapsed_seconds();
  v.add("steps_left", left.steps).add("seconds_left", left.seconds, "s");
  v.add("seconds_left_low", left.low, "s")
      .add("seconds_left_high", left.high, "s")
      .add("silence_seconds", silence, "s");
  if (price > 0) {
    v.add("cost_in_all", (elapsed + left.seconds) / 3600 * price);
  }
  v.label = silence > std::max(kSilence, 20 * pace.seconds) ? "silent" : "running";
  v.confidence = std::isnan(left.seconds) || pace.blocks < 3 ? Confidence::low
                 : left.high - left.low > left.seconds       ? Confidence::medium
                                                             : Confidence::high;
  const std::string rest = std::isnan(left.seconds)
                               ? "where it ends is not known"
                               : fmt::format("{} more are left{}, {} in all", human_duration(left.seconds),
                                             band_text(left), human_duration(elapsed + left.seconds));
  const std::string cost =
      price > 0 ? cost_text(m, elapsed, price) +
                      (std::isnan(left.seconds)
                           ? " so far"
                           : fmt::format(" so far, {:.2f} in all", (elapsed + left.seconds) / 3600 * price))
                : "";
  v.answer = v.label == "silent" ? fmt::format(
                                       "The run has written nothing for {} and has not ended: it was stopped or "
                                       "hangs after {}; going on, {}{}.",
                                       human_duration(silence), done, rest, cost)
                                 : fmt::format("{} are done; {}{}.", done, rest, cost);
}

}  // namespace

const EventPoint* end_of(const RankMetrics& m) {
  for (auto event = m.events.rbegin(); event != m.events.rend(); ++event) {
    if (event->event == "end") {
      const bool trained_on = (!m.train.empty() && m.train.back().step > event->step) ||
                              (!m.setups.empty() && m.setups.back().time > event->time);
      return trained_on ? nullptr : &*event;
    }
  }
  return nullptr;
}

double recent_seconds_per_step(const RankMetrics& m) { return pace_of(m).seconds; }

Verdict how_long(const RunData& run, const RunPlan& plan, double now, double price) {
  Verdict v{.key = "how_long", .question = "How long does it take?", .label = "empty", .answer = ""};
  const RankMetrics& m = run.main();
  if (m.train.empty()) {
    v.answer = "No training step is recorded yet, so nothing can be said about time.";
    return v;
  }
  const Pace pace = pace_of(m);
  Totals seen = totals_of(m.train);
  const double steps = static_cast<double>(m.last_step());
  // A stretch between the last record and a resume is not recorded: the means know it.
  const double whole = seen.steps > 0 ? steps / seen.steps : 0;
  seen.pairs *= whole, seen.source_tokens *= whole, seen.target_tokens *= whole;
  const double elapsed = m.elapsed_seconds();
  const EventPoint* end = end_of(m);
  v.add("steps", steps).add("elapsed_seconds", elapsed, "s").add("pairs", seen.pairs);
  v.add("source_tokens", seen.source_tokens).add("target_tokens", seen.target_tokens);
  v.add("epochs", m.train.back().epoch).add("seconds_per_step", pace.seconds, "s");
  if (price > 0) {
    v.add("cost", elapsed / 3600 * price);
  }
  const std::string done = fmt::format("{} step{} in {} of training ({})", grouped(m.last_step()),
                                       m.last_step() == 1 ? "" : "s", human_duration(elapsed), amount_text(m, seen));
  if (end != nullptr) {
    v.label = "ended";
    v.confidence = Confidence::high;
    v.answer = fmt::format("The run is over: {}{}; why it ended: {}.", done, cost_text(m, elapsed, price),
                           end->details.empty() ? "it was told to" : end->details);
    return v;
  }
  const double silence = now > 0 ? now - m.last_time() : 0;
  add_rest(v, m, pace, left_of(m, plan, pace), done, silence, price);
  return v;
}

}  // namespace tandem
