#include "observe/verdicts/learning_rate.h"

#include <fmt/format.h>

#include <cmath>

#include "observe/progress.h"

namespace tandem {

Verdict learning_rate_explained(const RunData& run, const RunPlan& plan) {
  Verdict v{.key = "learning_rate", .question = "How does the learning rate go?", .label = "empty", .answer = ""};
  const TrainPoint* last = nullptr;
  const TrainPoint* highest = nullptr;
  for (const TrainPoint& point : run.main().train) {
    if (std::isfinite(point.learning_rate)) {
      last = &point;
      highest = highest == nullptr || point.learning_rate > highest->learning_rate ? &point : highest;
    }
  }
  const std::string formula = plan.schedule.empty() ? "The config says nothing about the schedule." : plan.schedule;
  if (last == nullptr) {
    v.answer = formula + " No rate is recorded yet.";
    return v;
  }
  // A record of step s, counted from 1, carries the rate that the step s - 1, counted from 0, was made with.
  const double planned = plan.rate_at ? plan.rate_at(last->step - 1) : kUnknown;
  const double factor = last->learning_rate / planned;
  v.add("rate_now", last->learning_rate).add("step", static_cast<double>(last->step));
  v.add("rate_highest_recorded", highest->learning_rate).add("step_of_highest", static_cast<double>(highest->step));
  v.add("rate_planned", planned).add("applied_over_planned", factor);
  std::string sentence = fmt::format(" Now {:.4g} at step {}; highest recorded {:.4g} at step {}", last->learning_rate,
                                     grouped(last->step), highest->learning_rate, grouped(highest->step));
  if (!std::isfinite(factor)) {
    v.label = "no_plan";
    v.confidence = Confidence::medium;
  } else if (std::fabs(factor - 1) < 1e-3) {  // rates are kept as f32 or better
    v.label = "as_planned";
    v.confidence = Confidence::high;
    sentence += ", as the formula says";
  } else {
    v.label = factor < 1 ? "lowered" : "differs";
    v.confidence = factor < 1 ? Confidence::high : Confidence::medium;
    sentence += fmt::format(", {:.4g} times what the formula says{}", factor,
                            factor < 1 ? ": rollbacks lower it, and so does a config changed since" : "");
  }
  v.answer = formula + sentence + ".";
  return v;
}

}  // namespace tandem
