#include "observe/verdicts/learning.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tandem::observe {

namespace {

constexpr int64_t kInARow = 5;  // skipped steps of a diverged run: chance overflows do not come so many in a row
constexpr double kHour = 3600;
constexpr size_t kEnough = 7;  // validations needed for medium confidence

// The first step of the `bad` points at the end of the series, if there are any.
template <class Point, class Bad>
std::optional<int64_t> since(const std::vector<Point>& points, const Bad& bad) {
  const auto good = std::find_if_not(points.rbegin(), points.rend(), bad);
  return good == points.rbegin() ? std::nullopt : std::optional(std::prev(good)->step);
}

// The first of the skipped steps in a row that the run ends with, if there are enough.
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

std::optional<int64_t> diverged_since(const RankMetrics& m) {
  const auto training = since(m.train, [](const TrainPoint& p) { return p.unfinite >= p.records; });
  // A validation without a loss (an empty set) has no NLL either; it counts only if others have one.
  const bool measured =
      std::any_of(m.valid.begin(), m.valid.end(), [](const ValidPoint& p) { return std::isfinite(p.nll); });
  const auto validating =
      measured ? since(m.valid, [](const ValidPoint& p) { return !std::isfinite(p.nll); }) : std::nullopt;
  return earlier(earlier(training, validating), skipping_since(m));
}

// A score that is the same throughout (0 at the start, 100 at the end) has no noise and no trend.
std::optional<Trend> trend_if_any(const ValidationSeries& series) {
  return series.size() >= kFewestValidations && deviation(series.y) > 0 ? std::optional(trend_of(series))
                                                                        : std::nullopt;
}

// A sudden change of level is a change of the model: if one of the two shows it, older points of both are left out.
void add_trends(Learning& l) {
  std::optional<Trend>&nll = l.nll_trend, &bleu = l.bleu_trend;
  nll = trend_if_any(l.nll), bleu = trend_if_any(l.bleu);
  if (nll && bleu && nll->shifted && nll->first_step > bleu->first_step) {
    bleu = trend_if_any(since_step(l.bleu, nll->first_step));
  } else if (nll && bleu && bleu->shifted && bleu->first_step > nll->first_step) {
    nll = trend_if_any(since_step(l.nll, bleu->first_step));
  }
}

// Whether validation or training loss ever fell beyond its noise, or there are too few validations to tell.
bool ever_fell(const RankMetrics& m, const ValidationSeries& nll) {
  if (nll.size() < kFewestValidations || fit_line(nll.x, nll.y).upper < 0) {
    return true;
  }
  std::vector<double> x, y;
  for (const TrainPoint& point : m.train) {
    if (point.step > 0 && std::isfinite(point.nll) && std::fabs(point.nll) < 1e4) {
      x.push_back(std::log(static_cast<double>(point.step)));
      y.push_back(point.nll);
    }
  }
  return x.size() >= 5 && fit_line(x, y).upper < 0;
}

// A trend may not hold for longer than it was seen, and it was seen at the learning rates of its time.
Outlook outlook_of(const Trend& seen, const RunPlan& plan, double seconds_per_step) {
  Outlook outlook;
  outlook.steps = std::min(kHour / seconds_per_step, static_cast<double>(seen.last_step - seen.first_step));
  outlook.seconds = outlook.steps * seconds_per_step;
  if (plan.rate_at && outlook.known()) {
    outlook.rates = {plan.rate_at((seen.first_step + seen.last_step) / 2),
                     plan.rate_at(seen.last_step + static_cast<int64_t>(outlook.steps) / 2)};
  }
  return outlook;
}

void add_comparison(Learning& l) {
  l.best = best_of(l.valid);
  l.valid_trend = trend_of(l.valid), l.sample_trend = trend_of(l.sample);
  l.valid_rise = rise_since(l.valid, l.best), l.sample_rise = rise_since(l.sample, l.best);
  ValidationSeries worse = l.bleu;
  for (double& score : worse.y) {
    score = -score;
  }
  const auto best = std::lower_bound(worse.steps.begin(), worse.steps.end(), l.valid.steps[l.best]);
  l.bleu_risen =
      worse.size() >= kFewestValidations && rise_since(worse, static_cast<size_t>(best - worse.steps.begin())).below;
}

// Whether a trend improves beyond the bootstrap's 95 %, if not beyond the interval that decides.
bool hints_at_more(const Learning& l) {
  return (l.nll_trend && l.nll_trend->bootstrap_high < 0) || (l.bleu_trend && l.bleu_trend->bootstrap_low > 0);
}

const char* label_of(const Learning& l) {
  const Direction nll = l.nll_trend ? l.nll_trend->direction : Direction::flat;
  const Direction bleu = l.bleu_trend ? l.bleu_trend->direction : Direction::flat;
  const bool better = nll == Direction::falling || bleu == Direction::rising;
  const bool worse = nll == Direction::rising || bleu == Direction::falling;
  if (better || worse) {
    return better && worse ? "mixed" : better ? "still_improving" : "worsening";
  }
  if (l.nll_trend && l.past_best) {
    return "worsening";  // it settled, but at a worse level
  }
  return hints_at_more(l) ? "unclear" : l.ever_fell ? "flat" : "not_learning";
}

Confidence confidence_of(const std::string& label, const LineFit& fit) {
  if (label == "flat") {
    // The change that the interval still allows: twice the noise over 12 validations, 4 times the noise over 5.
    return fit.points >= 12 ? Confidence::high : fit.points >= 8 ? Confidence::medium : Confidence::low;
  }
  if (label == "unclear") {
    return Confidence::low;
  }
  const double limit = (fit.upper - fit.lower) / 2;
  return label != "mixed" && fit.points >= 8 && std::fabs(fit.slope) > 2 * limit ? Confidence::high
                                                                                 : Confidence::medium;
}

void add_trend(Verdict& v, const std::string& name, const char* unit, const Trend& trend) {
  const double thousand = 1000;
  v.add(name + "_slope_per_1000_steps", trend.change(trend.fit.slope, thousand), unit);
  v.add(name + "_slope_low", trend.change(trend.fit.lower, thousand), unit);
  v.add(name + "_slope_high", trend.change(trend.fit.upper, thousand), unit);
  v.add(name + "_noise", trend.fit.noise, unit);
  v.add(name + "_validations_used", static_cast<double>(trend.fit.points));
  v.add(name + "_since_step", static_cast<double>(trend.first_step));
}

void add_ahead(Verdict& v, const std::string& name, const char* unit, const Trend& trend, double steps) {
  v.add(name + "_ahead", trend.change(trend.fit.slope, steps), unit);
  v.add(name + "_ahead_low", trend.change(trend.bootstrap_low, steps), unit);
  v.add(name + "_ahead_high", trend.change(trend.bootstrap_high, steps), unit);
}

void add_outlook(Verdict& v, const Learning& l) {
  const Outlook& outlook = l.outlook;
  if (l.shifted() || !outlook.known()) {
    return;
  }
  v.add("steps_ahead", outlook.steps).add("seconds_ahead", outlook.seconds, "s");
  if (outlook.rates) {
    v.add("learning_rate_ahead", outlook.rates->ahead);
    v.add("learning_rate_ahead_share", outlook.rates->ahead / outlook.rates->seen);
  }
  if (l.bleu_trend) {
    add_ahead(v, "bleu", "BLEU", *l.bleu_trend, outlook.steps);
  }
  if (l.nll_trend) {
    add_ahead(v, "nll", "nats", *l.nll_trend, outlook.steps);
  }
}

}  // namespace

Finiteness finiteness_of(const RankMetrics& m) {
  Finiteness f{.recorded = !m.train.empty() || !m.events.empty(), .last_step = m.last_step()};
  for (const TrainPoint& point : m.train) {
    f.steps += point.steps;
    f.skipped += point.skipped_steps;
    f.unfinite += point.unfinite;
  }
  const auto count = [&](const char* name) {
    return static_cast<double>(
        std::count_if(m.events.begin(), m.events.end(), [&](const EventPoint& e) { return e.event == name; }));
  };
  // A skipped step has an event and, once that is written, counts in a train record: the two must not be added.
  f.skipped = std::max(f.skipped, count("skipped"));
  f.rollbacks = count("rollback");
  f.diverged_since = diverged_since(m);
  return f;
}

Learning learning_of(const RankMetrics& m, const RunPlan& plan, const Pace& pace) {
  Learning l{.validations = m.valid.size(), .diverged_since = diverged_since(m)};
  l.nll = validation_series(m, {&ValidPoint::nll});
  l.bleu = validation_series(m, {&ValidPoint::bleu});
  l.valid = validation_series(m, {&ValidPoint::nll, &ValidPoint::train_nll});
  l.sample = validation_series(m, {&ValidPoint::train_nll, &ValidPoint::nll});
  l.training = m.train.empty() ? kUnknown : m.train.back().nll;
  add_trends(l);
  l.past_best = l.nll.size() >= kFewestValidations && rise_since(l.nll, best_of(l.nll)).beyond;
  l.ever_fell = ever_fell(m, l.nll);
  if (l.nll_trend || l.bleu_trend) {
    l.outlook = outlook_of(l.first_trend(), plan, pace.seconds);
  }
  if (l.valid.size() >= kFewestValidations) {
    add_comparison(l);
  }
  return l;
}

RateCourse rate_course_of(const RankMetrics& m, const RunPlan& plan) {
  RateCourse course{.schedule = plan.schedule};
  for (const TrainPoint& point : m.train) {
    if (std::isfinite(point.learning_rate)) {
      course.step = point.step, course.rate = point.learning_rate;
      if (!course.recorded || point.learning_rate > course.highest) {
        course.highest_step = point.step, course.highest = point.learning_rate;
      }
      course.recorded = true;
    }
  }
  // A record counts steps from 1 and the plan from 0, so the record of step s has the planned rate of step s - 1.
  course.planned = plan.rate_at && course.recorded ? plan.rate_at(course.step - 1) : kUnknown;
  return course;
}

Verdict trained_enough(const Learning& l) {
  Verdict v{.label = "diverged", .confidence = Confidence::high};
  v.add("validations", static_cast<double>(l.validations));
  if (l.diverged_since) {
    return v;
  }
  if (!l.nll_trend && !l.bleu_trend) {
    v.label = l.nll.size() + l.bleu.size() > 0 ? "too_early" : "no_validation";
    v.confidence = Confidence::low;
    return v;
  }
  if (l.nll_trend) {
    add_trend(v, "nll", "nats", *l.nll_trend);
  }
  if (l.bleu_trend) {
    add_trend(v, "bleu", "BLEU", *l.bleu_trend);
  }
  v.label = label_of(l);
  v.confidence = confidence_of(v.label, l.first_trend().fit);
  add_outlook(v, l);
  return v;
}

Verdict overfitting(const Learning& l) {
  if (l.diverged_since) {
    return {.label = "diverged", .confidence = Confidence::high};
  }
  if (l.valid.size() < kFewestValidations) {
    return {.label = l.valid.size() == 0 && l.validations > 0 ? "no_sample" : "too_early"};
  }
  Verdict v;
  const size_t last = l.valid.size() - 1;
  v.add("best_step", static_cast<double>(l.valid.steps[l.best])).add("best_nll", l.valid.y[l.best], "nats");
  v.add("last_nll", l.valid.y[last], "nats").add("last_train_sample_nll", l.sample.y[last], "nats");
  v.add("gap", l.gap_at(last), "nats").add("gap_at_best", l.gap_at(l.best), "nats");
  v.add("rise_since_best", l.valid_rise.amount, "nats").add("rise_from_noise_alone", l.valid_rise.threshold, "nats");
  v.add("noise", l.valid_trend.fit.noise, "nats").add("training_nll_with_dropout", l.training, "nats");
  const Direction sample = l.sample_trend.direction;
  const bool worsens = l.valid_trend.direction == Direction::rising || l.valid_rise.beyond;
  const bool sample_worsens = l.sample_rise.beyond || (!l.sample_rise.below && sample == Direction::rising);
  const bool sample_improves = l.sample_rise.below || sample == Direction::falling;
  v.label = !worsens ? "no" : sample_worsens ? "both_worsen" : "overfitting";
  // Unless the training sample falls, the rise may be a drift of both.
  const bool sure = v.label != "overfitting" || sample_improves;
  v.confidence = l.valid.size() >= 10 && sure ? Confidence::high
                 : l.valid.size() >= kEnough  ? Confidence::medium
                                              : Confidence::low;
  return v;
}

Verdict nonfinite(const Finiteness& f) {
  if (!f.recorded) {
    return {.label = "empty"};
  }
  Verdict v{.label = f.diverged_since                  ? "diverged"
                     : f.rollbacks > 0                 ? "rolled_back"
                     : f.skipped > 0 || f.unfinite > 0 ? "skipped"
                                                       : "none",
            .confidence = Confidence::high};
  v.add("skipped_steps", f.skipped).add("rollbacks", f.rollbacks).add("train_records_not_finite", f.unfinite);
  return v.add("skipped_share", f.skipped_share());
}

Verdict learning_rate_explained(const RateCourse& course) {
  if (!course.recorded) {
    return {.label = "empty"};
  }
  const double factor = course.over_planned();
  const bool planned = std::isfinite(factor), as_planned = std::fabs(factor - 1) < 1e-3;  // rates are f32 or better
  Verdict v{.label = !planned     ? "no_plan"
                     : as_planned ? "as_planned"
                     : factor < 1 ? "lowered"
                                  : "differs",
            .confidence = planned && (as_planned || factor < 1) ? Confidence::high : Confidence::medium};
  v.add("rate_now", course.rate).add("step", static_cast<double>(course.step));
  v.add("rate_highest_recorded", course.highest).add("step_of_highest", static_cast<double>(course.highest_step));
  return v.add("rate_planned", course.planned).add("applied_over_planned", factor);
}

}  // namespace tandem::observe
