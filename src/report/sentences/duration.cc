#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

// "1,000 steps in 53 s of training (232k pairs, ...)"
std::string done_text(const observe::Duration& d) {
  const std::string epochs = std::isfinite(d.epochs) ? fmt::format(", {:.2f} epochs", d.epochs) : "";
  return fmt::format("{} step{} in {} of training ({} pairs, {} source and {} target tokens{})", grouped(d.steps),
                     d.steps == 1 ? "" : "s", human_duration(d.elapsed), human_count(d.pairs),
                     human_count(d.source_tokens), human_count(d.target_tokens), epochs);
}

std::string cost_text(const observe::Duration& d) {
  return d.has_price() ? fmt::format("; cost {:.2f} at {:g} an hour{}", d.cost(d.elapsed), d.price,
                                     d.many_hosts ? " of all hosts" : "")
                       : "";
}

std::string rest_text(const observe::Duration& d) {
  if (!d.left.known()) {
    return "where it ends is not known";
  }
  std::string text = human_duration(d.left.seconds) + " more are left";
  if (d.left.has_interval()) {
    text += fmt::format(" ({} to {})", human_duration(d.left.low), human_duration(d.left.high));
  }
  return text + fmt::format(", {} in all", human_duration(d.elapsed + d.left.seconds));
}

std::string cost_so_far_text(const observe::Duration& d) {
  if (!d.has_price()) {
    return "";
  }
  std::string text = cost_text(d) + " so far";
  if (d.left.known()) {
    text += fmt::format(", {:.2f} in all", d.cost(d.elapsed + d.left.seconds));
  }
  return text;
}

std::string milliseconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

std::string record_text(const observe::StepTimes& t) {
  return t.every_step_recorded() ? "each by itself" : fmt::format("means of {:.0f} steps each", t.steps_per_record());
}

}  // namespace

std::string how_long_text(const observe::Duration& d, const observe::Verdict& v) {
  if (v.label == "empty") {
    return "No training step is recorded yet, so nothing can be said about time.";
  }
  if (v.label == "ended") {
    return fmt::format("The run is over: {}{}; why it ended: {}.", done_text(d), cost_text(d),
                       d.end->empty() ? "it was told to" : *d.end);
  }
  const std::string rest = rest_text(d) + cost_so_far_text(d);
  return v.label == "silent"
             ? fmt::format(
                   "The run has written nothing for {} and has not ended: it was stopped or hangs after {}; "
                   "going on, {}.",
                   human_duration(d.silence), done_text(d), rest)
             : fmt::format("{} are done; {}.", done_text(d), rest);
}

std::string step_time_text(const observe::StepTimes& t, const observe::Verdict& v) {
  if (v.label == "empty") {
    return "No step time is recorded yet.";
  }
  const observe::TrainPoint& sums = t.sums;
  std::string text = fmt::format(
      "A step (one update, {} pairs with {} target tokens) takes {} on average ({:.3g} steps/s), median {}, 95 % below "
      "{} ({}); with validations and checkpoints {} ({:.3g} steps/s); waiting for data is {:.1f} % of a step",
      human_count(sums.pairs / sums.steps), human_count(sums.target_tokens / sums.steps), milliseconds(t.mean()),
      1 / t.mean(), milliseconds(t.median), milliseconds(t.p95), record_text(t), milliseconds(t.with_pauses()),
      1 / t.with_pauses(), 100 * t.data_share());
  if (sums.communication_seconds > 0) {
    text += fmt::format(", for the network and other ranks {:.1f} %", 100 * t.communication_share());
  }
  text += fmt::format(", validations and checkpoints {:.1f} % of the run", 100 * t.pause_share());
  if (v.label == "slowing_down") {
    text += fmt::format("; steps became slower, {:.2f} times what they took early on", t.slowdown);
  }
  if (std::isfinite(t.since_start)) {
    text += fmt::format("; since the last start, at step {}, a step takes {}", grouped(t.started_at),
                        milliseconds(t.since_start));
  }
  return text + ".";
}

}  // namespace tandem::report
