// Answers in words about runs of one rank.
#include <gtest/gtest.h>

#include "asked.h"
#include "observe/made_run.h"
#include "observe/verdicts/learning.h"

namespace tandem::report {

namespace {

using testing::ask;
using testing::Asked;
using testing::bleu_down;
using testing::bleu_settled;
using testing::bleu_up;
using testing::falling;
using testing::MadeRun;
using testing::memorises;
using testing::rises_late;

TEST(RunAnswers, OverfittingByNllIsNotTheBestStepWhereBleuRises) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const MadeRun worse{.nll = rises_late, .train_nll = memorises, .bleu = bleu_down};
    const MadeRun better{.nll = rises_late, .train_nll = memorises, .bleu = bleu_up};
    EXPECT_NE(ask("overfitting", worse.make(seed)).answer.find("take the checkpoint of the best step"),
              std::string::npos);
    EXPECT_NE(ask("overfitting", better.make(seed)).answer.find("a later checkpoint translates better"),
              std::string::npos);
  }
}

// A rate that goes to 0 with the last step: what it brought at the end does not go on.
TEST(RunAnswers, NoGainIsPromisedAfterTheScheduleEnds) {
  const observe::RunData run = MadeRun{.nll = falling, .bleu = bleu_up}.make(1);
  const observe::RunPlan ends{.max_steps = 20000, .schedule = "", .rate_at = [](int64_t step) {
                                return 1e-3 * std::max(0.0, 1 - static_cast<double>(step) / 20000);
                              }};
  const observe::RunPlan goes_on{.max_steps = 20000, .schedule = "", .rate_at = [](int64_t) { return 1e-3; }};
  EXPECT_NE(ask("trained_enough", run, ends).answer.find("expect less"), std::string::npos);
  EXPECT_EQ(ask("trained_enough", run, goes_on).answer.find("expect less"), std::string::npos);
}

TEST(RunAnswers, ValidationsWithoutALossAreNotCalledNone) {
  observe::RunData run = MadeRun{}.make(1);
  for (observe::ValidPoint& point : run.ranks[0].valid) {
    point.nll = point.train_nll = observe::kUnknown;
  }
  EXPECT_NE(ask("overfitting", run).answer.find("the validations have no loss"), std::string::npos);
  for (observe::ValidPoint& point : run.ranks[0].valid) {
    point.bleu = 0;
  }
  EXPECT_EQ(ask("trained_enough", run).label, "too_early");
}

// A model that learns nothing: every validation has the same loss, and no BLEU was measured.
TEST(RunAnswers, EqualLossesWithoutBleuHaveAnAnswer) {
  observe::RunData run = MadeRun{.validations = 7}.make(1);
  for (observe::ValidPoint& point : run.ranks[0].valid) {
    point.nll = 2.5;
    point.bleu = observe::kUnknown;
  }
  for (const char* question : {"trained_enough", "overfitting"}) {
    const Asked asked = ask(question, run);
    EXPECT_FALSE(asked.label.empty()) << question;
    EXPECT_FALSE(asked.answer.empty()) << question;
    EXPECT_NE(asked.label, "no_validation") << question;
  }
}

TEST(RunAnswers, APriceIsOfAllHosts) {
  observe::RunData run = MadeRun{}.make(1);
  EXPECT_EQ(ask("how_long", run, {}, {}, 0, 3.6).answer.find("of all hosts"), std::string::npos);
  observe::SetupPoint setup;
  setup.nodes = 4;
  run.ranks[0].setups = {setup};
  EXPECT_NE(ask("how_long", run, {}, {}, 0, 3.6).answer.find("at 3.6 an hour of all hosts"), std::string::npos);
}

TEST(RunAnswers, ABandThatIsNoneIsNotShown) {
  const observe::RunData run = MadeRun{}.make(1);
  EXPECT_EQ(ask("how_long", run, {.max_minutes = 60, .schedule = "", .rate_at = {}}, {}, 0, 0).answer.find(" to "),
            std::string::npos);
}

TEST(RunAnswers, TheScheduleIsExplained) {
  const observe::RunData run = MadeRun{}.make(1);
  const observe::RunPlan plan{.schedule = "fixed_lr: 0.001 at every step.", .rate_at = [](int64_t) { return 1e-3; }};
  EXPECT_NE(ask("learning_rate", run, plan).answer.find("fixed_lr"), std::string::npos);
}

// Wherever the loss stops being finite, and however many windows were merged by then.
TEST(RunAnswers, NaNIsNeverAnAnswer) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    observe::RunData run = MadeRun{.nll = falling, .train_nll = falling, .bleu = bleu_up}.make(seed);
    observe::RankMetrics& m = run.ranks[0];
    const size_t from = seed * 7919 % m.train.size();
    for (size_t i = from; i < m.train.size(); ++i) {
      m.train[i].nll = m.train[i].loss = observe::kUnknown;
      m.train[i].unfinite = m.train[i].records;
    }
    for (observe::ValidPoint& point : m.valid) {
      if (point.step >= m.train[from].step) {
        point.nll = point.train_nll = point.bleu = observe::kUnknown;
      }
    }
    EXPECT_EQ(ask("nonfinite", run).label, "diverged") << seed;
    EXPECT_EQ(observe::finiteness_of(m).diverged_since, m.train[from].step) << seed;
    EXPECT_EQ(ask("trained_enough", run).label, "diverged") << seed;
    EXPECT_EQ(ask("overfitting", run).label, "diverged") << seed;
    for (const Answer& v : make_report(run, {}, {}, 0, 0).answers) {
      EXPECT_EQ(v.text.find("nan"), std::string::npos) << seed << " " << v.text;
    }
  }
}

// A resumed run is judged as one that was never interrupted.
TEST(RunAnswers, AStartMoreChangesNoAnswerAboutTheModel) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    observe::RunData whole = MadeRun{.nll = rises_late, .train_nll = memorises, .bleu = bleu_down}.make(seed),
                     resumed = whole;
    observe::RankMetrics& m = resumed.ranks[0];
    const observe::TrainPoint& at = m.train[seed * 31 % m.train.size()];
    observe::SetupPoint first, second;
    first.time = 1.7e9, second.step = at.step, second.time = at.time + 0.01;
    m.setups = {first, second};
    EXPECT_EQ(ask("overfitting", resumed).answer, ask("overfitting", whole).answer);
    const Asked one = ask("trained_enough", whole),
                two = ask("trained_enough", resumed);  // only the pace is the last start's
    EXPECT_EQ(two.label, one.label);
    EXPECT_EQ(two.figure("nll_slope_per_1000_steps"), one.figure("nll_slope_per_1000_steps"));
    EXPECT_EQ(two.figure("bleu_slope_per_1000_steps"), one.figure("bleu_slope_per_1000_steps"));
    EXPECT_EQ(ask("how_long", resumed, {}, {}, 0, 0).figure("pairs"),
              ask("how_long", whole, {}, {}, 0, 0).figure("pairs"));
  }
}

TEST(RunAnswers, OneStepAndNothing) {
  observe::RunData run;
  run.ranks.emplace_back();
  for (const Answer& v : make_report(run, {}, {}, 0, 1).answers) {
    EXPECT_FALSE(v.text.empty());
    EXPECT_EQ(v.verdict.confidence, observe::Confidence::low) << v.key;
  }
  observe::TrainPoint one;
  one.step = 1, one.steps = 1, one.compute_seconds = 0.5, one.nll = 9, one.loss = 9.5, one.elapsed_seconds = 0.5;
  run.ranks[0].train.push_back(one);
  const observe::RunPlan plan{.max_steps = 101, .schedule = "", .rate_at = {}};
  const Asked v = ask("how_long", run, plan, {}, 0, 0);
  EXPECT_NEAR(v.figure("seconds_left"), 50, 1e-9);
  EXPECT_EQ(v.confidence, observe::Confidence::low);
  EXPECT_NEAR(ask("step_time", run).figure("mean"), 0.5, 1e-12);
  EXPECT_EQ(ask("nonfinite", run).label, "none");
}

TEST(RunAnswers, StepTimeSinceTheLastStartIsToldWhereItDiffers) {
  observe::RunData run = MadeRun{.step_seconds = [](double share) { return share <= 0.98 ? 0.1 : 1.0; }}.make(5);
  observe::SetupPoint setup;
  run.ranks[0].setups = {setup};
  EXPECT_EQ(ask("step_time", run).answer.find("since the last start"), std::string::npos);
  setup.step = 19600;
  run.ranks[0].setups.push_back(setup);
  EXPECT_NE(ask("step_time", run).answer.find("since the last start, at step 19,600, a step takes "),
            std::string::npos);
  run.ranks[0].setups.back().step = 100;  // what differs little is not told
  EXPECT_EQ(ask("step_time", run).answer.find("since the last start"), std::string::npos);
}

}  // namespace

}  // namespace tandem::report
