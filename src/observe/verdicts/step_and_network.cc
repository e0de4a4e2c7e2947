#include "observe/verdicts/step_and_network.h"

#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "core/units.h"
#include "observe/verdicts/network.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/statistics.h"

namespace tandem {

namespace {

constexpr size_t kFewestWindows = 5;
constexpr double kLevel = 1e-9;  // relative spread below which a series has none

// Of each window: a step's seconds, its wait for the network, bytes sent a step and a second.
struct Series {
  std::vector<double> step, wait, bytes, rate;
};

Series series_of(const RankClock& clock) {
  Series s;
  for (const TrainPoint& point : clock.windows) {
    s.step.push_back(point.step_seconds() / point.steps);
    s.wait.push_back(point.communication_seconds / point.steps);
    s.bytes.push_back(point.sent_bytes / point.steps);
    s.rate.push_back(point.sent_bytes / point.step_seconds());
  }
  return s;
}

bool varies(const std::vector<double>& values) { return deviation(values) > kLevel * std::fabs(mean(values)); }

// Pearson's; NaN where one of them does not vary.
double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  if (!varies(x) || !varies(y)) {
    return kUnknown;
  }
  const double mx = mean(x), my = mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += (x[i] - mx) * (y[i] - my);
  }
  return sum / (static_cast<double>(x.size()) - 1) / deviation(x) / deviation(y);
}

// How a step's time follows its wait.
std::string regression_text(Verdict& v, const Series& s) {
  const double together = correlation(s.wait, s.step);
  v.add("wait_and_step_correlation", together).add("rate_and_step_correlation", correlation(s.rate, s.step));
  if (!std::isfinite(together)) {
    return "";
  }
  const LineFit fit = fit_line(s.wait, s.step);
  v.add("step_seconds_per_wait_second", fit.slope).add("slope_low", fit.lower).add("slope_high", fit.upper);
  if (fit.lower <= 0 && fit.upper >= 0) {
    return fmt::format("; over {} windows the wait varies too little to see the step follow it", s.step.size());
  }
  return fmt::format(
      "; over {} windows a second more of waiting comes with {:.2g} s more of step (99 %: {:.2g} to "
      "{:.2g}; r = {:.2f})",
      s.step.size(), fit.slope, fit.lower, fit.upper, together);
}

bool too_little(Verdict& v, const RunData& run, const std::vector<RankClock>& clocks) {
  if (ranks_of(run) <= 1) {
    v.label = "single";
    v.confidence = clocks.empty() ? Confidence::low : Confidence::high;
    v.answer = "They do not: the run has one rank, so its steps use no network.";
    return true;
  }
  if (clocks.empty() || !(clocks.front().sent > 0)) {
    v.answer = "That cannot be said yet: no step with its bytes is recorded.";
    return true;
  }
  if (clocks.front().windows.size() < kFewestWindows) {
    v.label = "too_early";
    v.answer = fmt::format("That cannot be said yet: it wants {} windows of steps.", kFewestWindows);
    return true;
  }
  return false;
}

}  // namespace

Verdict step_and_network(const RunData& run) {
  Verdict v{.key = "step_and_network",
            .question = "How do step time and network go together?",
            .label = "empty",
            .answer = ""};
  const std::vector<RankClock> clocks = clocks_of(run);
  if (too_little(v, run, clocks)) {
    return v;
  }
  const RankClock& clock = clocks.front();
  const Series s = series_of(clock);
  const double exposed = network(run).figure("exposed_share"), rate = clock.sent / clock.step;
  const double spread = deviation(s.bytes) / mean(s.bytes);
  const bool limits = exposed >= kWorth;
  v.label = limits ? "network_sets_the_pace" : "steps_set_the_rate";
  v.confidence = confidence_by(clock.windows.size());
  v.add("bytes_per_step", clock.sent, "B").add("bytes_per_step_spread", spread).add("rate", rate, "B/s");
  v.add("rate_bits", 8 * rate, "bit/s").add("step", clock.step, "s").add("exposed_share", exposed);
  v.answer = fmt::format(
      "Every step sends {} {}, so the rate is only bytes over step time, {} / {} = {}: more MB/s come with faster "
      "steps, "
      "they do not cause them; ",
      spread < 0.01 ? "the same" : "about", human_bytes(clock.sent), human_bytes(clock.sent), seconds_text(clock.step),
      rate_text(rate));
  v.answer += limits
                  ? fmt::format("here the network sets the pace, as {} of a step waits for it", percent_text(exposed))
                  : fmt::format("the network does not limit, as only {} of a step waits for it", percent_text(exposed));
  v.answer += regression_text(v, s) + ".";
  return v;
}

}  // namespace tandem
