// Labelled runs and the verdicts that they must get, each drawn with 200 seeds. The trend's decision leaves 2 % of
// draws to chance by design, and the choice of a straight stretch about as much again: 184 of 200 must have the right
// label, which 4 % of errors miss once in some hundred times. "unclear" is an answer that a plateau may get.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "figure_of.h"
#include "made_run.h"
#include "observe/verdicts/duration.h"
#include "observe/verdicts/exchange.h"
#include "observe/verdicts/gpu_work.h"
#include "observe/verdicts/learning.h"
#include "observe/verdicts/storage.h"

namespace tandem::observe {

namespace {

using testing::bleu_down;
using testing::bleu_settled;
using testing::bleu_up;
using testing::falling;
using testing::figure_of;
using testing::MadeRun;
using testing::memorises;
using testing::rises_late;
using testing::settled;

constexpr int kSeeds = 200;
constexpr int kRight = 184;

double constant(double) { return 2.0; }
double turns(double share) { return share < 0.5 ? 2.6 - 1.2 * share : 1.9 + 0.2 * share; }  // falls fast, rises slowly
// A plateau that changes its level by `amount` after `from` of the run.
MadeRun::Curve jumps(double amount, double from) {
  return [=](double share) { return settled(share) + (share > from ? amount : 0); };
}

enum class Question { trained, overfit, steps };

struct Case {
  std::string name;
  Question question;
  MadeRun run;
  std::set<std::string> right;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

Learning learned(const RunData& run) { return learning_of(run.main(), {}, pace_of(run.main())); }
Verdict trained_enough(const RunData& run) { return trained_enough(learned(run)); }
Verdict overfitting(const RunData& run) { return overfitting(learned(run)); }
Verdict nonfinite(const RunData& run) { return nonfinite(finiteness_of(run.main())); }
Verdict step_time(const RunData& run) { return step_time(step_times_of(run.main())); }
Verdict how_long(const RunData& run, const RunPlan& plan, double now, double price) {
  return how_long(duration_of(run.main(), plan, now, price));
}
Verdict learning_rate_explained(const RunData& run, const RunPlan& plan) {
  return learning_rate_explained(rate_course_of(run.main(), plan));
}

Verdict ask(Question question, const RunData& run) {
  return question == Question::trained   ? trained_enough(run)
         : question == Question::overfit ? overfitting(run)
                                         : step_time(run);
}

std::vector<Case> cases() {
  const std::set<std::string> improving = {"still_improving"}, flat = {"flat", "unclear"}, no = {"no"};
  const MadeRun good{.nll = falling, .train_nll = falling, .bleu = bleu_up};
  const MadeRun plateau{.nll = settled, .train_nll = settled, .bleu = bleu_settled};
  const MadeRun over{.nll = rises_late, .train_nll = memorises, .bleu = bleu_down};
  const MadeRun gap{.nll = settled, .train_nll = memorises, .bleu = bleu_settled};
  const auto with = [](MadeRun run, auto change) {
    change(run);
    return run;
  };
  const auto quiet = [](MadeRun& r) { r.nll_noise = 0.002, r.bleu_noise = 0.05; };
  const auto loud = [](MadeRun& r) { r.nll_noise = 0.03, r.bleu_noise = 0.5; };
  const auto longer = [](MadeRun& r) { r.validations = 60; };
  const auto no_dropout = [](MadeRun& r) { r.dropout = -0.1; };
  const auto flat_start = [](MadeRun& r) { r.nll = r.train_nll = constant, r.bleu = [](double) { return 5.0; }; };
  return {
      {"improving", Question::trained, good, improving},
      {"improving_quiet", Question::trained, with(good, quiet), improving},
      {"improving_noisy", Question::trained, with(good, loud), improving},
      {"improving_long", Question::trained, with(good, longer), improving},
      {"plateau", Question::trained, plateau, flat},
      {"plateau_quiet", Question::trained, with(plateau, quiet), flat},
      {"plateau_noisy", Question::trained, with(plateau, loud), flat},
      {"plateau_long", Question::trained, with(plateau, longer), flat},
      {"plateau_at_the_last_step", Question::trained, with(plateau, [](MadeRun& r) { r.ended = true; }), flat},
      {"improving_at_the_last_step", Question::trained, with(good, [](MadeRun& r) { r.ended = true; }), improving},
      {"flat_from_the_start", Question::trained, with(plateau, flat_start), {"not_learning", "unclear"}},
      {"past_its_best", Question::trained, over, {"worsening"}},
      {"gap_but_flat", Question::trained, gap, flat},
      {"bleu_rises_as_nll_rises", Question::trained, with(over, [](MadeRun& r) { r.bleu = bleu_up; }), {"mixed"}},
      {"only_bleu_improves", Question::trained, with(plateau, [](MadeRun& r) { r.bleu = bleu_up; }), improving},
      {"drop_at_the_last_validation", Question::trained, with(plateau, [](MadeRun& r) { r.nll = jumps(-0.15, 0.97); }),
       improving},
      {"drop_three_validations_ago", Question::trained, with(plateau, [](MadeRun& r) { r.nll = jumps(-0.15, 0.87); }),
       improving},
      {"drop_long_ago_that_bleu_hardly_shows", Question::trained,
       with(plateau,
            [](MadeRun& r) {
              r.nll = jumps(-0.15, 0.5),
              r.bleu = [](double share) { return bleu_settled(share) + (share > 0.5 ? 1 : 0); };
            }),
       flat},
      {"drop_long_ago", Question::trained, with(plateau, [](MadeRun& r) { r.nll = jumps(-0.15, 0.5); }), flat},
      {"collapse_at_the_last_validation",
       Question::trained,
       with(plateau, [](MadeRun& r) { r.nll = r.train_nll = jumps(4, 0.97); }),
       {"worsening"}},
      {"collapse_three_validations_ago",
       Question::trained,
       with(plateau, [](MadeRun& r) { r.nll = r.train_nll = jumps(4, 0.87); }),
       {"worsening"}},
      {"collapse_long_ago",
       Question::trained,
       with(plateau, [](MadeRun& r) { r.nll = r.train_nll = jumps(4, 0.5); }),
       {"worsening"}},
      {"two_validations", Question::trained, with(good, [](MadeRun& r) { r.validations = 2; }), {"too_early"}},
      {"no_validation", Question::trained, with(good, [](MadeRun& r) { r.validations = 0; }), {"no_validation"}},
      {"improving_is_no_overfitting", Question::overfit, good, no},
      {"overfitting", Question::overfit, over, {"overfitting"}},
      {"overfitting_quiet", Question::overfit, with(over, quiet), {"overfitting"}},
      {"overfitting_noisy", Question::overfit, with(over, loud), {"overfitting"}},
      {"overfitting_long", Question::overfit, with(over, longer), {"overfitting"}},
      {"overfitting_dropout", Question::overfit, with(over, [](MadeRun& r) { r.dropout = 2; }), {"overfitting"}},
      {"overfitting_of_ten_validations",
       Question::overfit,
       with(over, [](MadeRun& r) { r.validations = 10, r.nll = turns, r.nll_noise = 0.005; }),
       {"overfitting"}},
      {"collapse_at_the_end_is_no_overfitting",
       Question::overfit,
       with(plateau, [](MadeRun& r) { r.nll = r.train_nll = jumps(4, 0.97); }),
       {"both_worsen"}},
      {"collapse_is_no_overfitting",
       Question::overfit,
       with(plateau, [](MadeRun& r) { r.nll = r.train_nll = jumps(4, 0.87); }),
       {"both_worsen"}},
      {"gap_alone", Question::overfit, gap, no},
      {"gap_alone_noisy", Question::overfit, with(gap, loud), no},
      {"gap_alone_long", Question::overfit, with(gap, longer), no},
      {"plateau_is_no_overfitting", Question::overfit, plateau, no},
      {"dropout_above_validation", Question::overfit, with(plateau, [](MadeRun& r) { r.dropout = 1; }), no},
      {"training_below_validation", Question::overfit, with(gap, no_dropout), no},
      {"flat_is_no_overfitting", Question::overfit, with(plateau, flat_start), no},
      {"both_rise", Question::overfit, with(over, [](MadeRun& r) { r.train_nll = rises_late; }), {"both_worsen"}},
      {"two_validations_no_overfitting",
       Question::overfit,
       with(over, [](MadeRun& r) { r.validations = 2; }),
       {"too_early"}},
      {"steady", Question::steps, good, {"steady"}},
      {"steady_noisy", Question::steps, with(good, [](MadeRun& r) { r.step_noise = 0.3; }), {"steady"}},
      {"slows_down",
       Question::steps,
       with(good, [](MadeRun& r) { r.step_seconds = [](double share) { return 0.1 * (1 + share); }; }),
       {"slowing_down"}},
      {"slow_start_only",
       Question::steps,
       with(good, [](MadeRun& r) { r.step_seconds = [](double share) { return share < 0.1 ? 0.3 : 0.1; }; }),
       {"steady"}},
      {"slow_data", Question::steps, with(good, [](MadeRun& r) { r.data_share = 0.4; }), {"slow_data"}},
      {"evaluation_heavy",
       Question::steps,
       with(good, [](MadeRun& r) { r.validation_seconds = 80; }),
       {"evaluation_heavy"}},
  };
}

class LabelledRun : public ::testing::TestWithParam<Case> {};

TEST_P(LabelledRun, GetsTheRightVerdictOnManyDrawsOfNoise) {
  const Case& c = GetParam();
  std::map<std::string, int> seen;
  int right = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Verdict v = ask(c.question, c.run.make(seed));
    ++seen[v.label];
    right += c.right.count(v.label) > 0 ? 1 : 0;
  }
  std::string labels;
  for (const auto& [label, count] : seen) {
    labels += " " + label + " " + std::to_string(count);
  }
  EXPECT_GE(right, kRight) << "labels:" << labels;
}

INSTANTIATE_TEST_SUITE_P(Cases, LabelledRun, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(Verdicts, PlateauIsMostlyCalledFlat) {
  const MadeRun plateau{.nll = settled, .train_nll = settled, .bleu = bleu_settled};
  int flat = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    flat += trained_enough(plateau.make(seed)).label == "flat" ? 1 : 0;
  }
  EXPECT_GE(flat, 75);
}

TEST(Verdicts, NextHourIsWithinItsBandForACurveThatGoesOn) {
  // 1 - ln(step) / 10: 1,000 steps after step 20,000 bring a known change.
  int within = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MadeRun run{.nll = [](double share) { return 3 - 0.1 * std::log(share * 20000); }};
    const Verdict v = trained_enough(run.make(seed));
    const double truth = -0.1 * std::log1p(figure_of(v, "steps_ahead") / 20000);
    within += figure_of(v, "nll_ahead_low") <= truth && truth <= figure_of(v, "nll_ahead_high") ? 1 : 0;
  }
  EXPECT_GE(within, 80);  // 95 % in theory; a bootstrap of few points falls short by some
}

TEST(Verdicts, OverfittingWantsATrainingSample) {
  RunData run = MadeRun{.nll = rises_late, .train_nll = memorises}.make(1);
  for (ValidPoint& point : run.ranks[0].valid) {
    point.train_nll = kUnknown;
  }
  EXPECT_EQ(overfitting(run).label, "no_sample");
}

TEST(Verdicts, OverfittingIsSureWhereTheTrainingSampleFalls) {
  const MadeRun wander{.nll = rises_late, .train_nll = [](double) { return 1.5; }, .bleu = bleu_settled};
  const MadeRun over{.nll = rises_late, .train_nll = memorises, .bleu = bleu_settled};
  EXPECT_EQ(overfitting(wander.make(1)).confidence, Confidence::medium);
  EXPECT_EQ(overfitting(over.make(1)).confidence, Confidence::high);
}

TEST(Verdicts, DivergedRunIsNeitherTrainedNorOverfitting) {
  RunData run = MadeRun{.nll = falling}.make(1);
  run.ranks[0].valid.back().nll = kUnknown;
  EXPECT_EQ(trained_enough(run).label, "diverged");
  EXPECT_EQ(overfitting(run).label, "diverged");
  EXPECT_EQ(nonfinite(run).label, "diverged");
}

TEST(Verdicts, HowLongOfARunThatGoesOn) {
  const RunPlan plan{.max_steps = 40000, .schedule = "", .rate_at = {}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RunData run = MadeRun{}.make(seed);
    const Verdict v = how_long(run, plan, run.main().last_time() + 10, 3.6);
    EXPECT_EQ(v.label, "running");
    // 20,000 steps of 0.1 s, and 20 pauses of 5.5 s, within 3 %.
    EXPECT_NEAR(figure_of(v, "seconds_left"), 2110, 63);
    EXPECT_LE(figure_of(v, "seconds_left_low"), figure_of(v, "seconds_left"));
    EXPECT_GE(figure_of(v, "seconds_left_high"), figure_of(v, "seconds_left"));
    EXPECT_NEAR(figure_of(v, "cost"), run.main().elapsed_seconds() / 1000, 1e-9);
    EXPECT_EQ(figure_of(v, "pairs"), 2e6);
    EXPECT_EQ(figure_of(v, "epochs"), 3);
  }
}

TEST(Verdicts, HowLongFollowsTheRecentPaceOfARunThatSlowsDown) {
  MadeRun made{.step_seconds = [](double share) { return share < 0.5 ? 0.1 : 0.3; }};
  const RunPlan plan{.max_steps = 30000, .schedule = "", .rate_at = {}};
  const Verdict v = how_long(made.make(3), plan, 0, 0);
  EXPECT_NEAR(figure_of(v, "seconds_left"), 3055, 150);
}

TEST(Verdicts, HowLongFollowsThePaceSinceTheLastStart) {
  const RunPlan plan{.max_steps = 30000, .schedule = "", .rate_at = {}};
  RunData run = MadeRun{.step_seconds = [](double share) { return share <= 0.98 ? 1.0 : 0.1; }}.make(3);
  SetupPoint first, second;
  first.time = 1.7e9, second.step = 19600, second.time = run.main().train[195].time + 1;
  run.ranks[0].setups = {first, second};  // on faster machines
  EXPECT_NEAR(figure_of(how_long(run, plan, 0, 0), "seconds_left"), 1055, 50);
}

TEST(Verdicts, HowLongEndsByWhatComesFirst) {
  const RunData run = MadeRun{}.make(1);
  const double elapsed = run.main().elapsed_seconds();
  const RunPlan minutes{.max_steps = 40000, .max_minutes = (elapsed + 60) / 60, .schedule = "", .rate_at = {}};
  EXPECT_NEAR(figure_of(how_long(run, minutes, 0, 0), "seconds_left"), 60, 1e-6);
  const RunPlan epochs{.max_steps = 0, .max_epochs = 6, .schedule = "", .rate_at = {}};
  EXPECT_NEAR(figure_of(how_long(run, epochs, 0, 0), "steps_left"), 20000, 1);
  EXPECT_TRUE(std::isnan(figure_of(how_long(run, {}, 0, 0), "seconds_left")));
}

TEST(Verdicts, HowLongOfEndedSilentAndResumedRuns) {
  MadeRun made;
  made.ended = true;
  RunData run = made.make(1);
  EXPECT_EQ(how_long(run, {}, 0, 0).label, "ended");
  RunData started = run;  // and has not made a step yet
  SetupPoint again;
  again.step = run.main().last_step(), again.time = run.main().last_time() + 60;
  started.ranks[0].setups.push_back(again);
  EXPECT_EQ(how_long(started, {}, 0, 0).label, "running");
  TrainPoint more = run.main().train.back();
  more.step += 100;
  run.ranks[0].train.push_back(more);
  EXPECT_EQ(how_long(run, {}, 0, 0).label, "running");
  EXPECT_EQ(how_long(run, {}, run.main().last_time() + 7200, 0).label, "silent");
}

TEST(Verdicts, ARunWhoseProbesStillComeIsNotSilent) {
  RunData run = MadeRun{}.make(1);  // in a validation that takes two hours
  ProbePoint probe;
  probe.time = run.main().last_time() + 7190;
  run.ranks[0].probes.push_back(probe);
  EXPECT_EQ(how_long(run, {}, probe.time + 10, 0).label, "running");
}

TEST(Verdicts, StepTimesAreTheOnesMade) {
  const Verdict v = step_time(MadeRun{}.make(5));
  EXPECT_NEAR(figure_of(v, "mean"), 0.1, 0.001);
  EXPECT_NEAR(figure_of(v, "median"), 0.1, 0.002);
  EXPECT_NEAR(figure_of(v, "p95"), 0.1 * std::exp(0.02 * 1.645), 0.002);
  EXPECT_NEAR(figure_of(v, "mean_with_pauses"), 0.1 + (20 * 5 + 19 * 0.5) / 20000, 0.001);
  EXPECT_NEAR(figure_of(v, "data_share"), 0.01, 1e-6);
  EXPECT_NEAR(figure_of(v, "steps_per_second") * figure_of(v, "mean"), 1, 1e-12);
}

TEST(Verdicts, LearningRateAgainstItsPlan) {
  RunData run = MadeRun{}.make(1);
  RunPlan plan{.schedule = "fixed_lr: 0.001 at every step.", .rate_at = [](int64_t) { return 1e-3; }};
  EXPECT_EQ(learning_rate_explained(run, plan).label, "as_planned");
  run.ranks[0].train.back().learning_rate = 5e-4;
  EXPECT_EQ(learning_rate_explained(run, plan).label, "lowered");
  EXPECT_DOUBLE_EQ(figure_of(learning_rate_explained(run, plan), "applied_over_planned"), 0.5);
  EXPECT_EQ(learning_rate_explained(run, {}).label, "no_plan");
}

TEST(Verdicts, SkippedStepsAndRollbacksAreCounted) {
  RunData run = MadeRun{}.make(1);
  EXPECT_EQ(nonfinite(run).label, "none");
  run.ranks[0].events.push_back({500, 0, "skipped", "gradient not finite"});
  run.ranks[0].train[4].skipped_steps = 1;
  EXPECT_EQ(nonfinite(run).label, "skipped");
  EXPECT_EQ(figure_of(nonfinite(run), "skipped_steps"), 1);
  run.ranks[0].events.push_back({1000, 0, "rollback", "from step 1400"});
  EXPECT_EQ(nonfinite(run).label, "rolled_back");
  EXPECT_EQ(figure_of(nonfinite(run), "rollbacks"), 1);
}

TEST(Verdicts, ARunThatDiedOfSkippedStepsHasDiverged) {
  RunData run = MadeRun{}.make(1);
  const int64_t last = run.main().last_step();
  run.ranks[0].events.push_back({last, 0, "rollback", "from step 20010"});
  for (int64_t step = last + 31; step <= last + 40; ++step) {
    run.ranks[0].events.push_back({step, 0, "skipped", "gradient not finite"});
  }
  EXPECT_EQ(nonfinite(run).label, "diverged");
  EXPECT_EQ(finiteness_of(run.main()).diverged_since, last + 31);
  EXPECT_EQ(trained_enough(run).label, "diverged");
  run.ranks[0].events.resize(3);  // two in a row are skipped, no more
  EXPECT_EQ(nonfinite(run).label, "rolled_back");
}

TEST(Verdicts, HugeNumbersAreNotBelieved) {
  RunData run = MadeRun{.nll = falling, .train_nll = falling, .bleu = bleu_up}.make(1);
  run.ranks[0].valid[3].nll = 1e300;
  run.ranks[0].valid[4].bleu = -1e300;
  run.ranks[0].valid[5].train_nll = 1e18;
  EXPECT_EQ(trained_enough(run).label, "still_improving");
  EXPECT_EQ(overfitting(run).label, "no");
  EXPECT_TRUE(std::isfinite(figure_of(trained_enough(run), "nll_ahead")));
}

}  // namespace

}  // namespace tandem::observe
