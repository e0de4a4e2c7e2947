#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

const char* plural(size_t count) { return count == 1 ? "" : "s"; }

// How a quantity is named and written.
struct Named {
  const char *name, *unit;
  int digits;
};
constexpr Named kNll{"validation NLL", " nats", 4}, kBleu{"BLEU", "", 2};

std::string slope_text(const Named& n, const observe::Trend& t) {
  if (t.shift != 0) {
    return fmt::format("{} went {:+.{}f}{} at once at step {} (noise of one {:.{}f})", n.name, t.shift, n.digits,
                       n.unit, grouped(t.shift_step), t.fit.noise, n.digits);
  }
  const double way = std::log(static_cast<double>(t.last_step) / static_cast<double>(t.first_step));
  return fmt::format("{} went {:+.{}f}{} over the last {} validations (since step {}; noise of one {:.{}f})", n.name,
                     t.fit.slope * way, n.digits, n.unit, t.fit.points, grouped(t.first_step), t.fit.noise, n.digits);
}

// The texts of both trends, with `between` them.
template <class Text>
std::string of_both(const observe::Learning& l, const char* between, const Text& text) {
  return fmt::format("{}{}{}", l.nll_trend ? text(kNll, *l.nll_trend) : "", l.nll_trend && l.bleu_trend ? between : "",
                     l.bleu_trend ? text(kBleu, *l.bleu_trend) : "");
}

std::string outlook_text(const observe::Learning& l) {
  if (l.shifted()) {
    return "; how it goes on from there is not known yet";
  }
  if (!l.outlook.known()) {
    return "";
  }
  const double steps = l.outlook.steps;
  const auto change = [&](const Named& n, const observe::Trend& t) {
    return fmt::format("{:+.{}f} {} (95 %: {:+.{}f} to {:+.{}f})", t.change(t.fit.slope, steps), n.digits,
                       &n == &kNll ? "nats" : "BLEU", t.change(t.bootstrap_low, steps), n.digits,
                       t.change(t.bootstrap_high, steps), n.digits);
  };
  std::string text =
      fmt::format("; at this pace the next {} ({} steps) would bring {}", human_duration(l.outlook.seconds),
                  grouped(static_cast<int64_t>(steps)), of_both(l, " and ", change));
  if (l.outlook.rates && l.outlook.rates->falls()) {
    text += fmt::format(", but at a learning rate that is {:.2g} by then instead of {:.2g}: expect less",
                        l.outlook.rates->ahead, l.outlook.rates->seen);
  }
  return text;
}

std::string flat_text(observe::Confidence confidence) {
  const char* word = confidence == observe::Confidence::high     ? "Yes"
                     : confidence == observe::Confidence::medium ? "Probably"
                                                                 : "It looks so";
  return fmt::format("{}, as far as these settings go: no change beyond the noise is left", word);
}

std::string opening(const observe::Verdict& v) {
  return v.label == "flat"              ? flat_text(v.confidence)
         : v.label == "still_improving" ? "No, it still improves"
         : v.label == "unclear"         ? "Perhaps not: it seems to improve still, but not yet beyond its noise"
         : v.label == "worsening"       ? "It is past its best: validation got worse beyond its noise"
         : v.label == "mixed" ? "NLL and BLEU disagree: one gets better, the other worse, both beyond their noise"
                              : "No, it does not learn: no loss has fallen beyond its noise since the start";
}

std::string too_early_text(const observe::Learning& l) {
  if (l.never_changes()) {
    return l.bleu.size() == 0
               ? fmt::format("That cannot be said yet: NLL is always {:.4f} nats.", l.nll.y.back())
               : fmt::format("That cannot be said yet: there are too few losses, and BLEU is always {:.2f}.",
                             l.bleu.y.back());
  }
  std::string text = fmt::format("That cannot be said yet: {} validation{}, and a slope with its noise wants {}",
                                 l.measured(), plural(l.measured()), observe::kFewestValidations);
  if (l.nll.size() > 1) {
    text += fmt::format("; NLL went from {:.4f} to {:.4f} nats", l.nll.y.front(), l.nll.y.back());
  }
  return text + ".";
}

// Validation and training sample, now and at the best.
std::string levels_text(const observe::Learning& l) {
  const size_t last = l.valid.size() - 1;
  return fmt::format(
      "validation NLL {:.4f} nats now, best {:.4f} at step {}, training sample {:.4f} (gap {:.4f}, {:.4f} at the best)",
      l.valid.y[last], l.valid.y[l.best], grouped(l.valid.steps[l.best]), l.sample.y[last], l.gap_at(last),
      l.gap_at(l.best));
}

std::string no_overfitting_text(const observe::Learning& l, observe::Confidence confidence) {
  std::string text = fmt::format(
      "No: {}; {}, and a gap alone is not overfitting", levels_text(l),
      confidence == observe::Confidence::low && l.above_best()
          ? "validation lies above its best, but so few validations do not show that this is more than noise"
          : "validation is not worse than at its best beyond its noise");
  if (l.training_above_validation()) {
    text += fmt::format("; the training loss, {:.4f} in training mode, lies above the validation's, which is normal",
                        l.training);
  }
  return text + ".";
}

}  // namespace

std::string trained_enough_text(const observe::Learning& l, const observe::Verdict& v) {
  if (v.label == "diverged") {
    return fmt::format("No: the loss is not finite since step {}; take the best checkpoint before it.",
                       grouped(*l.diverged_since));
  }
  if (v.label == "no_validation") {
    return "That cannot be said: there is no validation yet.";
  }
  if (v.label == "too_early") {
    return too_early_text(l);
  }
  std::string text = opening(v) + ": " + of_both(l, ", ", slope_text);
  if (v.label == "worsening" && l.nll_trend) {
    const size_t best = observe::best_of(l.nll);
    text += fmt::format("; the lowest NLL was {:.4f} at step {}, the newest is {:.4f}", l.nll.y[best],
                        grouped(l.nll.steps[best]), l.nll.y.back());
  }
  return text + outlook_text(l) + ".";
}

std::string overfitting_text(const observe::Learning& l, const observe::Verdict& v) {
  if (v.label == "diverged") {
    return "That is not the question: the loss is not finite any more.";
  }
  if (v.label == "no_sample") {
    return l.nll.size() > 0
               ? "That cannot be said: no training sample was scored in evaluation mode (validation.train_sample)."
               : "That cannot be said: the validations have no loss.";
  }
  if (v.label == "too_early") {
    return fmt::format("That cannot be said yet: {} validation{}, and noise wants {} to be known.", l.valid.size(),
                       plural(l.valid.size()), observe::kFewestValidations);
  }
  if (v.label == "overfitting") {
    return fmt::format(
        "Yes, since about step {}: {}; validation has risen beyond its noise while the training sample has not, {}.",
        grouped(l.valid.steps[l.best]), levels_text(l),
        l.bleu_risen ? "but BLEU has risen since, so a later checkpoint translates better"
                     : "so take the checkpoint of the best step");
  }
  if (v.label == "both_worsen") {
    return fmt::format(
        "No, but it gets worse: {}; the training sample has risen too, so the training diverges rather than overfits.",
        levels_text(l));
  }
  return no_overfitting_text(l, v.confidence);
}

std::string nonfinite_text(const observe::Finiteness& f, const observe::Verdict& v) {
  const auto rollbacks = static_cast<size_t>(f.rollbacks);
  const std::string counts =
      fmt::format("{} of {} steps skipped, {} rollback{}", grouped(static_cast<int64_t>(f.skipped)),
                  grouped(f.last_step), rollbacks, plural(rollbacks));
  if (v.label == "empty") {
    return "No training step is recorded yet.";
  }
  if (v.label == "diverged") {
    return fmt::format("No: since step {} the loss is not finite, and the training is lost from there on ({}).",
                       grouped(*f.diverged_since), counts);
  }
  if (v.label == "rolled_back") {
    return fmt::format(
        "No: {}; each rollback came after skipped steps in a row, went back to a checkpoint and lowered the learning "
        "rate; what was trained in between is gone, and not counted here.",
        counts);
  }
  if (v.label == "skipped") {
    return fmt::format("Not always: {} ({:.3g} %); a skipped step changes no weight.", counts,
                       100 * f.skipped / f.steps);
  }
  return fmt::format("Yes: none of {} steps was skipped, and there was no rollback.", grouped(f.last_step));
}

std::string learning_rate_text(const observe::RateCourse& course, const observe::Verdict& v) {
  std::string text = course.schedule.empty() ? "The config says nothing about the schedule." : course.schedule;
  if (v.label == "empty") {
    return text + " No rate is recorded yet.";
  }
  text += fmt::format(" Now {:.4g} at step {}; highest recorded {:.4g} at step {}", course.rate, grouped(course.step),
                      course.highest, grouped(course.highest_step));
  if (v.label == "as_planned") {
    text += ", as the formula says";
  } else if (v.label != "no_plan") {
    text += fmt::format(", {:.4g} times what the formula says{}", course.over_planned(),
                        v.label == "lowered" ? ": rollbacks lower it, and so does a config changed since" : "");
  }
  return text + ".";
}

}  // namespace tandem::report
