#include "observe/verdicts/trained_enough.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/human.h"
#include "observe/verdicts/how_long.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/past_best.h"

namespace tandem {

namespace {

constexpr double kHour = 3600;

struct Trends {
  std::optional<Trend> nll, bleu;
};

// A score that is the same throughout (0 at the start, 100 at the end) has no noise and says nothing.
std::optional<Trend> trend_if_any(const ValidationSeries& series) {
  return series.size() >= kFewestValidations && deviation(series.y) > 0 ? std::optional(trend_of(series))
                                                                        : std::nullopt;
}

// A sudden change of level is one of the model: where one of the two shows it, the older points of both are of the
// past.
Trends trends_of(const ValidationSeries& nll, const ValidationSeries& bleu) {
  Trends trends{trend_if_any(nll), trend_if_any(bleu)};
  if (trends.nll && trends.bleu && trends.nll->shifted && trends.nll->first_step > trends.bleu->first_step) {
    trends.bleu = trend_if_any(since_step(bleu, trends.nll->first_step));
  } else if (trends.nll && trends.bleu && trends.bleu->shifted && trends.bleu->first_step > trends.nll->first_step) {
    trends.nll = trend_if_any(since_step(nll, trends.bleu->first_step));
  }
  return trends;
}

// Beyond the bootstrap's 95 % but not beyond the interval that decides.
bool hints_at_more(const Trends& trends) {
  return (trends.nll && trends.nll->bootstrap_high < 0) || (trends.bleu && trends.bleu->bootstrap_low > 0);
}

const char* label_of(const Trends& trends) {
  const Direction nll = trends.nll ? trends.nll->direction : Direction::flat;
  const Direction bleu = trends.bleu ? trends.bleu->direction : Direction::flat;
  const bool better = nll == Direction::falling || bleu == Direction::rising;
  const bool worse = nll == Direction::rising || bleu == Direction::falling;
  return better && worse         ? "mixed"
         : better                ? "still_improving"
         : worse                 ? "worsening"
         : hints_at_more(trends) ? "unclear"
                                 : "flat";
}

// Neither validation nor training loss ever fell beyond its noise.
bool not_learning(const RankMetrics& m, const ValidationSeries& nll) {
  std::vector<double> x, y;
  for (const TrainPoint& point : m.train) {
    if (point.step > 0 && std::isfinite(point.nll) && std::fabs(point.nll) < 1e4) {
      x.push_back(std::log(static_cast<double>(point.step)));
      y.push_back(point.nll);
    }
  }
  const bool training_fell = x.size() >= 5 && fit_line(x, y).upper < 0;
  return !training_fell && nll.size() >= kFewestValidations && !(fit_line(nll.x, nll.y).upper < 0);
}

Confidence confidence_of(const std::string& label, const Trends& trends) {
  const LineFit& fit = trends.nll ? trends.nll->fit : trends.bleu->fit;
  if (label == "flat") {
    // What the interval still allows shrinks with the points: 2 noises over 12 validations, 4 over 5.
    return fit.points >= 12 ? Confidence::high : fit.points >= 8 ? Confidence::medium : Confidence::low;
  }
  if (label == "unclear") {
    return Confidence::low;
  }
  const double limit = (fit.upper - fit.lower) / 2;
  return label != "mixed" && fit.points >= 8 && std::fabs(fit.slope) > 2 * limit ? Confidence::high
                                                                                 : Confidence::medium;
}

// "-0.012 nats (95 %: -0.020 to -0.004)" and its figures.
std::string ahead(Verdict& v, const char* name, const char* unit, int digits, const Trend& trend, double steps) {
  const double change = trend.change(trend.fit.slope, steps);
  const double low = trend.change(trend.bootstrap_low, steps), high = trend.change(trend.bootstrap_high, steps);
  const std::string key(name);
  v.add(key + "_ahead", change, unit).add(key + "_ahead_low", low, unit);
  v.add(key + "_ahead_high", high, unit);
  return fmt::format("{:+.{}f} {} (95 %: {:+.{}f} to {:+.{}f})", change, digits, unit, low, digits, high, digits);
}

void add_trend(Verdict& v, const char* name, const char* unit, const Trend& trend) {
  const std::string key(name);
  const double thousand = 1000;
  v.add(key + "_slope_per_1000_steps", trend.change(trend.fit.slope, thousand), unit);
  v.add(key + "_slope_low", trend.change(trend.fit.lower, thousand), unit);
  v.add(key + "_slope_high", trend.change(trend.fit.upper, thousand), unit);
  v.add(key + "_noise", trend.fit.noise, unit);
  v.add(key + "_validations_used", static_cast<double>(trend.fit.points));
  v.add(key + "_since_step", static_cast<double>(trend.first_step));
}

std::string opening(const std::string& label, Confidence confidence) {
  if (label == "flat") {
    const char* word = confidence == Confidence::high     ? "Yes"
                       : confidence == Confidence::medium ? "Probably"
                                                          : "It looks so";
    return fmt::format("{}, as far as these settings go: no change beyond the noise is left", word);
  }
  return label == "still_improving" ? "No, it still improves"
         : label == "unclear"       ? "Perhaps not: it seems to improve still, but not yet beyond its noise"
         : label == "worsening"     ? "It is past its best: validation got worse beyond its noise"
         : label == "mixed"         ? "NLL and BLEU disagree: one gets better, the other worse, both beyond their noise"
                                    : "No, it does not learn: no loss has fallen beyond its noise since the start";
}

// A slope was seen at the learning rates of its time; a schedule that ends takes it along.
std::string rate_ahead_text(Verdict& v, const RunPlan& plan, const Trend& seen, double steps) {
  if (!plan.rate_at) {
    return "";
  }
  const int64_t last = seen.last_step, ahead = static_cast<int64_t>(steps);
  const double then = plan.rate_at((seen.first_step + last) / 2), next = plan.rate_at(last + ahead / 2);
  v.add("learning_rate_ahead", next).add("learning_rate_ahead_share", next / then);
  return next < then / 2
             ? fmt::format(", but at a learning rate that is {:.2g} by then instead of {:.2g}: expect less", next, then)
             : "";
}

// What an hour more would bring, or as many steps as the slope was seen over: it is not known to hold for longer.
std::string outlook(Verdict& v, const Trends& trends, const RunPlan& plan, double seconds_per_step) {
  if ((trends.nll && trends.nll->shift != 0) || (trends.bleu && trends.bleu->shift != 0)) {
    return "; how it goes on from there is not known yet";
  }
  const Trend& seen = trends.nll ? *trends.nll : *trends.bleu;
  const double steps = std::min(kHour / seconds_per_step, static_cast<double>(seen.last_step - seen.first_step));
  if (!(steps >= 1)) {
    return "";
  }
  v.add("steps_ahead", steps).add("seconds_ahead", steps * seconds_per_step, "s");
  return fmt::format(
      "; at this pace the next {} ({} steps) would bring {}{}{}{}", human_duration(steps * seconds_per_step),
      grouped(static_cast<int64_t>(steps)), trends.nll ? ahead(v, "nll", "nats", 4, *trends.nll, steps) : "",
      trends.nll && trends.bleu ? " and " : "", trends.bleu ? ahead(v, "bleu", "BLEU", 2, *trends.bleu, steps) : "",
      rate_ahead_text(v, plan, seen, steps));
}

std::string slopes_text(const Trends& trends) {
  std::string text;
  const auto say = [&](const char* name, const char* unit, int digits, const Trend& t) {
    text += text.empty() ? "" : ", ";
    if (t.shift != 0) {
      text += fmt::format("{} went {:+.{}f}{} at once at step {} (noise of one {:.{}f})", name, t.shift, digits, unit,
                          grouped(t.shift_step), t.fit.noise, digits);
      return;
    }
    const double way = std::log(static_cast<double>(t.last_step) / static_cast<double>(t.first_step));
    text += fmt::format("{} went {:+.{}f}{} over the last {} validations (since step {}; noise of one {:.{}f})", name,
                        t.fit.slope * way, digits, unit, t.fit.points, grouped(t.first_step), t.fit.noise, digits);
  };
  if (trends.nll) {
    say("validation NLL", " nats", 4, *trends.nll);
  }
  if (trends.bleu) {
    say("BLEU", "", 2, *trends.bleu);
  }
  return text;
}

// The label and answer where there is nothing to fit.
bool too_little(Verdict& v, const RankMetrics& m, const ValidationSeries& nll, const ValidationSeries& bleu) {
  if (const std::optional<int64_t> since = diverged_since(m)) {
    v.label = "diverged";
    v.confidence = Confidence::high;
    v.answer =
        fmt::format("No: the loss is not finite since step {}; take the best checkpoint before it.", grouped(*since));
    return true;
  }
  if (nll.size() == 0 && bleu.size() == 0) {
    v.answer = "That cannot be said: there is no validation yet.";
    return true;
  }
  if (const size_t measured = std::max(nll.size(), bleu.size()); measured < kFewestValidations) {
    v.label = "too_early";
    v.answer = fmt::format(
        "That cannot be said yet: {} validation{}, and a slope with its noise wants {}{}.", measured,
        measured == 1 ? "" : "s", kFewestValidations,
        nll.size() > 1 ? fmt::format("; NLL went from {:.4f} to {:.4f} nats", nll.y.front(), nll.y.back()) : "");
    return true;
  }
  return false;
}

}  // namespace

Verdict trained_enough(const RunData& run, const RunPlan& plan) {
  Verdict v{.key = "trained_enough", .question = "Is it fully trained?", .label = "no_validation", .answer = ""};
  const RankMetrics& m = run.main();
  const ValidationSeries nll = validation_series(m, {&ValidPoint::nll}),
                         bleu = validation_series(m, {&ValidPoint::bleu});
  v.add("validations", static_cast<double>(m.valid.size()));
  if (too_little(v, m, nll, bleu)) {
    return v;
  }
  const Trends trends = trends_of(nll, bleu);
  if (trends.nll) {
    add_trend(v, "nll", "nats", *trends.nll);
  }
  if (trends.bleu) {
    add_trend(v, "bleu", "BLEU", *trends.bleu);
  }
  if (!trends.nll && !trends.bleu) {
    v.label = "too_early";
    v.answer =
        fmt::format("That cannot be said yet: there are too few losses, and BLEU is always {:.2f}.", bleu.y.back());
    return v;
  }
  v.label = label_of(trends);
  const bool undecided = v.label == "flat" || v.label == "unclear";
  if (undecided && trends.nll && rise_since(nll, best_of(nll)).beyond) {
    v.label = "worsening";  // it settled, but at a worse level
  } else if (v.label == "flat" && not_learning(m, nll)) {
    v.label = "not_learning";
  }
  v.confidence = confidence_of(v.label, trends);
  v.answer = fmt::format("{}: {}", opening(v.label, v.confidence), slopes_text(trends));
  if (v.label == "worsening" && trends.nll) {
    const size_t best = best_of(nll);
    v.answer += fmt::format("; the lowest NLL was {:.4f} at step {}, the newest is {:.4f}", nll.y[best],
                            grouped(nll.steps[best]), nll.y.back());
  }
  v.answer += outlook(v, trends, plan, recent_seconds_per_step(m));
  v.answer += ".";
  return v;
}

}  // namespace tandem
