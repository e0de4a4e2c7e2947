#include "observe/verdicts/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "observe/progress.h"

namespace tandem {

namespace {

constexpr int64_t kInARow = 5;  // skipped steps: a gradient that overflows by chance does not do so again and again

// The first of the newest points that all are `bad`.
template <class Point, class Bad>
std::optional<int64_t> since(const std::vector<Point>& points, const Bad& bad) {
  const auto good = std::find_if_not(points.rbegin(), points.rend(), bad);
  return good == points.rbegin() ? std::nullopt : std::optional(std::prev(good)->step);
}

// Nothing but skipped steps at the end, one after the other.
std::optional<int64_t> skipping_since(const RankMetrics& m) {
  int64_t step = m.last_step();
  for (auto event = m.events.rbegin(); event != m.events.rend() && event->event == "skipped" && event->step == step;
       ++event) {
    --step;
  }
  return m.last_step() - step >= kInARow ? std::optional(step + 1) : std::nullopt;
}

std::optional<int64_t> earlier(std::optional<int64_t> a, std::optional<int64_t> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

std::optional<int64_t> diverged_since(const RankMetrics& m) {
  const auto training = since(m.train, [](const TrainPoint& p) { return p.unfinite >= p.records; });
  // A validation without a loss (an empty set) has no NLL either; it says nothing, unless others have one.
  const bool measured =
      std::any_of(m.valid.begin(), m.valid.end(), [](const ValidPoint& p) { return std::isfinite(p.nll); });
  const auto validating =
      measured ? since(m.valid, [](const ValidPoint& p) { return !std::isfinite(p.nll); }) : std::nullopt;
  return earlier(earlier(training, validating), skipping_since(m));
}

Verdict nonfinite(const RunData& run) {
  Verdict v{.key = "nonfinite", .question = "Was every number finite?", .label = "empty", .answer = ""};
  const RankMetrics& m = run.main();
  if (m.train.empty() && m.events.empty()) {
    v.answer = "No training step is recorded yet.";
    return v;
  }
  double steps = 0, skipped = 0, unfinite = 0;
  for (const TrainPoint& point : m.train) {
    steps += point.steps;
    skipped += point.skipped_steps;
    unfinite += point.unfinite;
  }
  const auto count = [&](const char* name) {
    return static_cast<double>(
        std::count_if(m.events.begin(), m.events.end(), [&](const EventPoint& e) { return e.event == name; }));
  };
  // Each skipped step has an event, and is counted in a train record once that is written: never both.
  skipped = std::max(skipped, count("skipped"));
  const double rollbacks = count("rollback");
  v.confidence = Confidence::high;
  v.add("skipped_steps", skipped).add("rollbacks", rollbacks).add("train_records_not_finite", unfinite);
  v.add("skipped_share", steps > 0 ? skipped / steps : 0);
  const std::string counts =
      fmt::format("{} of {} steps skipped, {} rollback{}", grouped(static_cast<int64_t>(skipped)),
                  grouped(m.last_step()), static_cast<int64_t>(rollbacks), rollbacks == 1 ? "" : "s");
  if (const std::optional<int64_t> since_step = diverged_since(m)) {
    v.label = "diverged";
    v.answer = fmt::format("No: since step {} the loss is not finite, and the training is lost from there on ({}).",
                           grouped(*since_step), counts);
  } else if (rollbacks > 0) {
    v.label = "rolled_back";
    v.answer = fmt::format(
        "No: {}; each rollback came after skipped steps in a row, went back to a checkpoint and lowered the learning "
        "rate; what was trained in between is gone, and not counted here.",
        counts);
  } else if (skipped > 0 || unfinite > 0) {
    v.label = "skipped";
    v.answer = fmt::format("Not always: {} ({:.3g} %); a skipped step changes no weight.", counts,
                           steps > 0 ? 100 * skipped / steps : 0);
  } else {
    v.label = "none";
    v.answer = fmt::format("Yes: none of {} steps was skipped, and there was no rollback.", grouped(m.last_step()));
  }
  return v;
}

}  // namespace tandem
