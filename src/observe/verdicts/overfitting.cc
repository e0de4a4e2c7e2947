#include "observe/verdicts/overfitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "observe/progress.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/validation_series.h"

namespace tandem {

namespace {

constexpr size_t kRecent = 3;  // validations that stand for now
constexpr size_t kAround = 2;  // neighbours on each side that stand for the best

// How a curve stands now against the time of the best validation.
struct Rise {
  double amount = 0;     // mean of now - mean of then
  double threshold = 0;  // what noise alone exceeds in 1 % of cases
  bool known = false;    // there are points for both
};

// The best point itself is left out: it was chosen for its noise, its neighbours were not.
Rise rise_of(const ValidationSeries& curve, size_t best) {
  Rise rise;
  const size_t recent = curve.size() - kRecent;
  std::vector<double> then;
  for (size_t i = best - std::min(best, kAround); i <= best + kAround && i < recent; ++i) {
    if (i != best) {
      then.push_back(curve.y[i]);
    }
  }
  if (then.empty() || best >= recent) {
    return rise;
  }
  int freedom = 1;
  const double noise = noise_of_curve(curve.x, curve.y, freedom);
  rise.known = true;
  rise.amount = mean(std::span(curve.y).last(kRecent)) - mean(then);
  rise.threshold = student_t_990(freedom) * noise * std::sqrt(1.0 / kRecent + 1.0 / static_cast<double>(then.size()));
  return rise;
}

double last_training_nll(const RankMetrics& m) { return m.train.empty() ? kUnknown : m.train.back().nll; }

std::string dropout_text(const RankMetrics& m, double valid) {
  const double training = last_training_nll(m);
  return training > valid ? fmt::format(
                                "; the training loss, {:.4f} in training mode, lies above the validation's, "
                                "which is normal",
                                training)
                          : "";
}

// The label and answer where there is nothing to compare.
bool too_little(Verdict& v, const RankMetrics& m, const ValidationSeries& valid) {
  if (diverged_since(m)) {
    v.label = "diverged";
    v.confidence = Confidence::high;
    v.answer = "That is not the question: the loss is not finite any more.";
    return true;
  }
  if (valid.size() == 0 && validation_series(m, {&ValidPoint::nll}).size() > 0) {
    v.label = "no_sample";
    v.answer = "That cannot be said: no training sample was scored in evaluation mode (validation.train_sample).";
    return true;
  }
  if (valid.size() < kFewestValidations) {
    v.answer = fmt::format("That cannot be said yet: {} validation{}, and noise wants {} to be known.", valid.size(),
                           valid.size() == 1 ? "" : "s", kFewestValidations);
    return true;
  }
  return false;
}

std::string sentence(const std::string& label, const ValidationSeries& valid, const ValidationSeries& train,
                     size_t best, const std::string& dropout) {
  const std::string levels = fmt::format(
      "validation NLL {:.4f} nats now, best {:.4f} at step {}, training sample {:.4f} (gap {:.4f}, {:.4f} at "
      "the best)",
      valid.y.back(), valid.y[best], grouped(valid.steps[best]), train.y.back(), valid.y.back() - train.y.back(),
      valid.y[best] - train.y[best]);
  return label == "overfitting"
             ? fmt::format(
                   "Yes, since about step {}: {}; validation has risen beyond its noise while the training "
                   "sample has not, so take the checkpoint of the best step.",
                   grouped(valid.steps[best]), levels)
         : label == "both_worsen"
             ? fmt::format(
                   "No, but it gets worse: {}; the training sample has risen too, so the training diverges "
                   "rather than overfits.",
                   levels)
             : fmt::format(
                   "No: {}; validation is not worse than at its best beyond its noise, and a gap alone is "
                   "not overfitting{}.",
                   levels, dropout);
}

}  // namespace

Verdict overfitting(const RunData& run) {
  Verdict v{.key = "overfitting", .question = "Does it overfit?", .label = "too_early", .answer = ""};
  const RankMetrics& m = run.main();
  const ValidationSeries valid = validation_series(m, {&ValidPoint::nll, &ValidPoint::train_nll});
  const ValidationSeries train = validation_series(m, {&ValidPoint::train_nll, &ValidPoint::nll});
  if (too_little(v, m, valid)) {
    return v;
  }
  const size_t best = static_cast<size_t>(std::min_element(valid.y.begin(), valid.y.end()) - valid.y.begin());
  const Trend trend = trend_of(valid);
  const Rise rise = rise_of(valid, best), train_rise = rise_of(train, best);
  const bool worsens = trend.direction == Direction::rising || (rise.known && rise.amount > rise.threshold);
  const Trend train_trend = trend_of(train);
  const bool train_worsens =
      train_rise.known ? train_rise.amount > train_rise.threshold : train_trend.direction == Direction::rising;
  const double gap = valid.y.back() - train.y.back(), gap_at_best = valid.y[best] - train.y[best];
  v.add("best_step", static_cast<double>(valid.steps[best])).add("best_nll", valid.y[best], "nats");
  v.add("last_nll", valid.y.back(), "nats").add("last_train_sample_nll", train.y.back(), "nats");
  v.add("gap", gap, "nats").add("gap_at_best", gap_at_best, "nats");
  v.add("rise_since_best", rise.known ? rise.amount : kUnknown, "nats");
  v.add("rise_from_noise_alone", rise.known ? rise.threshold : kUnknown, "nats");
  v.add("noise", trend.fit.noise, "nats").add("training_nll_with_dropout", last_training_nll(m), "nats");
  v.label = !worsens ? "no" : train_worsens ? "both_worsen" : "overfitting";
  v.confidence = valid.size() >= 10 ? Confidence::high : valid.size() >= 7 ? Confidence::medium : Confidence::low;
  v.answer = sentence(v.label, valid, train, best, dropout_text(m, valid.y.back()));
  return v;
}

}  // namespace tandem
