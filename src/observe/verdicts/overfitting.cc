#include "observe/verdicts/overfitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/progress.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/past_best.h"

namespace tandem {

namespace {

constexpr size_t kEnough = 7;  // validations to be believed

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
  if (valid.size() == 0 && !m.valid.empty()) {
    v.label = "no_sample";
    v.answer = validation_series(m, {&ValidPoint::nll}).size() > 0
                   ? "That cannot be said: no training sample was scored in evaluation mode (validation.train_sample)."
                   : "That cannot be said: the validations have no loss.";
    return true;
  }
  if (valid.size() < kFewestValidations) {
    v.answer = fmt::format("That cannot be said yet: {} validation{}, and noise wants {} to be known.", valid.size(),
                           valid.size() == 1 ? "" : "s", kFewestValidations);
    return true;
  }
  return false;
}

// The checkpoint to take: the best by NLL is not the best translator where BLEU went on rising.
std::string advice(const RankMetrics& m, int64_t best_step) {
  ValidationSeries worse = validation_series(m, {&ValidPoint::bleu});
  const auto best =
      static_cast<size_t>(std::lower_bound(worse.steps.begin(), worse.steps.end(), best_step) - worse.steps.begin());
  for (double& score : worse.y) {
    score = -score;
  }
  return worse.size() >= kFewestValidations && rise_since(worse, best).below
             ? "but BLEU has risen since, so a later checkpoint translates better"
             : "so take the checkpoint of the best step";
}

// Confident in "no" only where there are enough validations to have seen it.
std::string denial(size_t validations, bool above) {
  return validations < kEnough && above
             ? "validation lies above its best, but so few validations do not show that this is more than noise"
             : "validation is not worse than at its best beyond its noise";
}

std::string sentence(const std::string& label, const ValidationSeries& valid, const ValidationSeries& train,
                     size_t best, const std::string& advice, const std::string& dropout) {
  const std::string levels = fmt::format(
      "validation NLL {:.4f} nats now, best {:.4f} at step {}, training sample {:.4f} (gap {:.4f}, {:.4f} at "
      "the best)",
      valid.y.back(), valid.y[best], grouped(valid.steps[best]), train.y.back(), valid.y.back() - train.y.back(),
      valid.y[best] - train.y[best]);
  return label == "overfitting"
             ? fmt::format(
                   "Yes, since about step {}: {}; validation has risen beyond its noise while the training "
                   "sample has not, {}.",
                   grouped(valid.steps[best]), levels, advice)
         : label == "both_worsen"
             ? fmt::format(
                   "No, but it gets worse: {}; the training sample has risen too, so the training diverges "
                   "rather than overfits.",
                   levels)
             : fmt::format("No: {}; {}, and a gap alone is not overfitting{}.", levels,
                           denial(valid.size(), best + 1 < valid.size()), dropout);
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
  const size_t best = best_of(valid);
  const Trend trend = trend_of(valid), train_trend = trend_of(train);
  const Rise rise = rise_since(valid, best), train_rise = rise_since(train, best);
  const bool worsens = trend.direction == Direction::rising || rise.beyond;
  const bool train_worsens = train_rise.beyond || (!train_rise.below && train_trend.direction == Direction::rising);
  const bool train_improves = train_rise.below || train_trend.direction == Direction::falling;
  const double gap = valid.y.back() - train.y.back(), gap_at_best = valid.y[best] - train.y[best];
  v.add("best_step", static_cast<double>(valid.steps[best])).add("best_nll", valid.y[best], "nats");
  v.add("last_nll", valid.y.back(), "nats").add("last_train_sample_nll", train.y.back(), "nats");
  v.add("gap", gap, "nats").add("gap_at_best", gap_at_best, "nats");
  v.add("rise_since_best", rise.known ? rise.amount : kUnknown, "nats");
  v.add("rise_from_noise_alone", rise.known ? rise.threshold : kUnknown, "nats");
  v.add("noise", trend.fit.noise, "nats").add("training_nll_with_dropout", last_training_nll(m), "nats");
  v.label = !worsens ? "no" : train_worsens ? "both_worsen" : "overfitting";
  // A rise without a fall of the training sample may be a wander of both.
  const bool sure = v.label != "overfitting" || train_improves;
  v.confidence = valid.size() >= 10 && sure ? Confidence::high
                 : valid.size() >= kEnough  ? Confidence::medium
                                            : Confidence::low;
  v.answer = sentence(v.label, valid, train, best, advice(m, valid.steps[best]), dropout_text(m, valid.y.back()));
  return v;
}

}  // namespace tandem
