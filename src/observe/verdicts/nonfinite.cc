#include "observe/verdicts/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/progress.h"

namespace tandem {

bool diverged(const RankMetrics& m) {
  const bool training = !m.train.empty() && m.train.back().unfinite >= m.train.back().records;
  // A validation without a loss (an empty set) has no NLL either; it says nothing, unless others have one.
  const bool measured =
      std::any_of(m.valid.begin(), m.valid.end(), [](const ValidPoint& p) { return std::isfinite(p.nll); });
  const bool validating = measured && !std::isfinite(m.valid.back().nll);
  return training || validating;
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
  if (diverged(m)) {
    v.label = "diverged";
    v.answer = fmt::format("No, and the newest loss, at step {}, is not finite: the model is lost from there on ({}).",
                           grouped(m.last_step()), counts);
  } else if (rollbacks > 0) {
    v.label = "rolled_back";
    v.answer = fmt::format(
        "No: {}; each rollback went back to a checkpoint and lowered the learning rate, and what "
        "was trained in between is gone.",
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
