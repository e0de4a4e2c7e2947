// Labels, confidence and figures as functions of facts: every threshold from both sides, without a run and without
// words.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "figure_of.h"
#include "observe/verdicts/duration.h"
#include "observe/verdicts/exchange.h"
#include "observe/verdicts/gpu_work.h"
#include "observe/verdicts/learning.h"
#include "observe/verdicts/storage.h"

namespace tandem::observe {

namespace {

using testing::figure_of;

Duration made_duration() {
  Duration d{.trained = true, .steps = 100, .elapsed = 50, .pace = {}, .left = {}, .end = {}};
  d.pace = {.seconds = 0.5, .error = 0.01, .block_steps = 10, .blocks = 8};
  d.left = {.steps = 200, .seconds = 100, .low = 90, .high = 110};
  return d;
}

TEST(VerdictRules, HowLong) {
  Duration d = made_duration();
  EXPECT_EQ(how_long({}).label, "empty");
  EXPECT_EQ(how_long(d).label, "running");
  EXPECT_EQ(how_long(d).confidence, Confidence::high);
  EXPECT_EQ(figure_of(how_long(d), "seconds_left"), 100);
  EXPECT_TRUE(std::isnan(figure_of(how_long(d), "cost")));
  d.price = 36;
  EXPECT_DOUBLE_EQ(figure_of(how_long(d), "cost"), 0.5);
  EXPECT_DOUBLE_EQ(figure_of(how_long(d), "cost_in_all"), 1.5);
  d.left.low = 40;
  d.left.high = 160;
  EXPECT_EQ(how_long(d).confidence, Confidence::medium);
  d.pace.blocks = 2;
  EXPECT_EQ(how_long(d).confidence, Confidence::low);
  d.silence = 900;
  EXPECT_EQ(how_long(d).label, "running");
  d.silence = 901;
  EXPECT_EQ(how_long(d).label, "silent");
  d.pace.seconds = 100;  // twenty steps may be silent
  EXPECT_EQ(how_long(d).label, "running");
  d.end = "";
  EXPECT_EQ(how_long(d).label, "ended");
  EXPECT_EQ(how_long(d).confidence, Confidence::high);
  EXPECT_TRUE(std::isnan(figure_of(how_long(d), "seconds_left")));
}

TEST(VerdictRules, StepTime) {
  StepTimes t{
      .records = 19,
      .sums = {
          .steps = 100, .compute_seconds = 81, .data_seconds = 9, .validation_seconds = 5, .checkpoint_seconds = 5}};
  EXPECT_EQ(step_time({}).label, "empty");
  EXPECT_EQ(step_time(t).label, "steady");
  EXPECT_EQ(step_time(t).confidence, Confidence::medium);
  EXPECT_DOUBLE_EQ(figure_of(step_time(t), "mean"), 0.9);
  EXPECT_DOUBLE_EQ(figure_of(step_time(t), "mean_with_pauses"), 1);
  t.sums.checkpoint_seconds = 6;
  EXPECT_EQ(step_time(t).label, "evaluation_heavy");
  t.sums.data_seconds = 9.1;
  EXPECT_EQ(step_time(t).label, "slow_data");
  t.slowdown = 1.11;
  EXPECT_EQ(step_time(t).label, "slowing_down");
}

// A trend of `points` validations whose slope is `slope` with an interval of 1 on each side.
Trend made_trend(double slope, size_t points = 12) {
  Trend t{.fit = {.points = points, .slope = slope, .lower = slope - 1, .upper = slope + 1}};
  t.direction = slope < -1 ? Direction::falling : slope > 1 ? Direction::rising : Direction::flat;
  t.bootstrap_low = slope - 0.8, t.bootstrap_high = slope + 0.8;
  t.first_step = 100, t.last_step = 1000;
  return t;
}

std::string trained(std::optional<Trend> nll, std::optional<Trend> bleu) {
  Learning l;
  l.nll_trend = std::move(nll), l.bleu_trend = std::move(bleu);
  return trained_enough(l).label;
}

TEST(VerdictRules, TrainedEnoughFollowsFromTrends) {
  EXPECT_EQ(trained({}, {}), "no_validation");
  EXPECT_EQ(trained(made_trend(-2), made_trend(0)), "still_improving");
  EXPECT_EQ(trained(made_trend(0), made_trend(2)), "still_improving");
  EXPECT_EQ(trained(made_trend(2), {}), "worsening");
  EXPECT_EQ(trained({}, made_trend(-2)), "worsening");
  EXPECT_EQ(trained(made_trend(2), made_trend(2)), "mixed");
  EXPECT_EQ(trained(made_trend(0), made_trend(0)), "flat");
  EXPECT_EQ(trained(made_trend(-0.9), made_trend(0)), "unclear");
  EXPECT_EQ(trained({}, made_trend(0.9)), "unclear");
  Learning l;
  l.nll_trend = made_trend(0);
  l.ever_fell = false;
  EXPECT_EQ(trained_enough(l).label, "not_learning");
  l.past_best = true;
  EXPECT_EQ(trained_enough(l).label, "worsening");
  l.nll_trend = made_trend(-2);
  EXPECT_EQ(trained_enough(l).label, "still_improving");
  l.diverged_since = 7;
  EXPECT_EQ(trained_enough(l).label, "diverged");
}

TEST(VerdictRules, TrainedEnoughIsSureByPointsAndSlope) {
  const auto sure = [](double slope, size_t points) {
    Learning l;
    l.nll_trend = made_trend(slope, points);
    return trained_enough(l).confidence;
  };
  EXPECT_EQ(sure(0, 12), Confidence::high);
  EXPECT_EQ(sure(0, 11), Confidence::medium);
  EXPECT_EQ(sure(0, 7), Confidence::low);
  EXPECT_EQ(sure(-2.1, 8), Confidence::high);
  EXPECT_EQ(sure(-1.9, 8), Confidence::medium);
  EXPECT_EQ(sure(-2.1, 7), Confidence::medium);
}

TEST(VerdictRules, TheOutlookIsOneOfTrendsThatGoOn) {
  Learning l;
  l.nll_trend = made_trend(-2);
  l.outlook = {.steps = 1000, .seconds = 60, .rates = Outlook::Rates{1e-3, 1e-4}};
  EXPECT_TRUE(l.outlook.rates->falls());
  EXPECT_DOUBLE_EQ(figure_of(trained_enough(l), "nll_ahead"), -2 * std::log(2));
  EXPECT_DOUBLE_EQ(figure_of(trained_enough(l), "learning_rate_ahead_share"), 0.1);
  l.nll_trend->shift = -0.5;
  EXPECT_TRUE(std::isnan(figure_of(trained_enough(l), "nll_ahead")));
}

TEST(VerdictRules, Overfitting) {
  Learning l;
  EXPECT_EQ(overfitting(l).label, "too_early");
  l.validations = 9;
  EXPECT_EQ(overfitting(l).label, "no_sample");
  l.valid = {.x = std::vector<double>(10), .y = std::vector<double>(10, 2), .steps = std::vector<int64_t>(10)};
  l.sample = l.valid;
  EXPECT_EQ(overfitting(l).label, "no");
  EXPECT_EQ(overfitting(l).confidence, Confidence::high);
  l.valid_rise.beyond = true;
  EXPECT_EQ(overfitting(l).label, "overfitting");
  EXPECT_EQ(overfitting(l).confidence, Confidence::medium);  // the training sample does not fall
  l.sample_rise.below = true;
  EXPECT_EQ(overfitting(l).confidence, Confidence::high);
  l.sample_trend.direction = Direction::rising;
  EXPECT_EQ(overfitting(l).label, "overfitting");
  l.sample_rise.below = false;
  EXPECT_EQ(overfitting(l).label, "both_worsen");
}

TEST(VerdictRules, Nonfinite) {
  Finiteness f;
  EXPECT_EQ(nonfinite(f).label, "empty");
  f = {.recorded = true, .last_step = 200, .steps = 200};
  EXPECT_EQ(nonfinite(f).label, "none");
  f.skipped = 2;
  EXPECT_EQ(nonfinite(f).label, "skipped");
  EXPECT_DOUBLE_EQ(figure_of(nonfinite(f), "skipped_share"), 0.01);
  f.rollbacks = 1;
  EXPECT_EQ(nonfinite(f).label, "rolled_back");
  f.diverged_since = 190;
  EXPECT_EQ(nonfinite(f).label, "diverged");
}

TEST(VerdictRules, LearningRate) {
  RateCourse course{.schedule = ""};
  EXPECT_EQ(learning_rate_explained(course).label, "empty");
  course.recorded = true, course.rate = 1e-3;
  EXPECT_EQ(learning_rate_explained(course).label, "no_plan");
  course.planned = 1.0005e-3;
  EXPECT_EQ(learning_rate_explained(course).label, "as_planned");
  course.planned = 2e-3;
  EXPECT_EQ(learning_rate_explained(course).label, "lowered");
  course.planned = 0.5e-3;
  EXPECT_EQ(learning_rate_explained(course).label, "differs");
}

// Two ranks that take a second for a step, of which the network takes `exposed`, and others `others`.
Exchange made_exchange(double exposed, double others) {
  RankClock clock{.windows = std::vector<TrainPoint>(20)};
  clock.sum.steps = 1, clock.sum.sent_bytes = 1e6, clock.sum.compute_seconds = 1;
  Exchange e{.ranks = 2, .clocks = {clock, clock}, .fewest_windows = 20};
  e.waits = {.step = 1, .compute = 1 - exposed, .exposed = exposed, .others = others, .transfer = exposed};
  e.waits.measured = exposed > 0;
  e.together = {.windows = 20, .bytes_spread = 0};
  return e;
}

TEST(VerdictRules, Network) {
  EXPECT_EQ(network({.ranks = 1}).label, "single");
  EXPECT_EQ(network({.ranks = 2}).label, "empty");
  EXPECT_EQ(network(made_exchange(0.5, 0)).label, "network_bound");
  EXPECT_EQ(network(made_exchange(0.49, 0)).label, "partly");
  EXPECT_EQ(network(made_exchange(0.1, 0.5)).label, "partly");
  EXPECT_EQ(network(made_exchange(0.09, 0.1)).label, "slow_rank");
  EXPECT_EQ(network(made_exchange(0.09, 0.09)).label, "no");
  Exchange e = made_exchange(0.5, 0);
  EXPECT_EQ(network(e).confidence, Confidence::high);
  e.ranks = 3;
  EXPECT_EQ(network(e).confidence, Confidence::low);
  EXPECT_EQ(figure_of(network(e), "step_infinite_network"), 0.5);
  EXPECT_EQ(figure_of(network(e), "speedup_infinite_network"), 2);
  EXPECT_TRUE(std::isnan(figure_of(network(e), "step_bf16")));
  e.clocks[0].setup.wire = "f32";
  EXPECT_EQ(figure_of(network(e), "step_bf16"), 0.75);
  e.clocks[0].setup.sharded = 1;  // weights come back in f32
  EXPECT_EQ(figure_of(network(e), "step_bf16"), 0.875);
  EXPECT_TRUE(std::isnan(figure_of(network(made_exchange(0.009, 0)), "step_infinite_network")));
}

TEST(VerdictRules, ThePortOfALink) {
  Exchange e = made_exchange(0.9, 0);
  e.link.bytes_per_second = 11e6;
  EXPECT_EQ(port_of(e), 100e6);
  e.link.stated_bits = 10e9;
  EXPECT_EQ(port_of(e), 100e6);
  EXPECT_FALSE(link_is_full(e));
  e.link.stated_bits = 100e6;
  EXPECT_TRUE(link_is_full(e));
  EXPECT_TRUE(std::isnan(port_of(e)));
  e.link = {.bytes_per_second = 5e6};  // of none that is usual
  EXPECT_TRUE(std::isnan(port_of(e)));
  e.link = {.bytes_per_second = 11e6, .one_host = true};
  EXPECT_TRUE(std::isnan(port_of(e)));
}

TEST(VerdictRules, StepAndNetwork) {
  EXPECT_EQ(step_and_network({.ranks = 1}).label, "single");
  EXPECT_EQ(step_and_network({.ranks = 2}).label, "empty");
  EXPECT_EQ(step_and_network(made_exchange(0.1, 0)).label, "network_sets_the_pace");
  EXPECT_EQ(step_and_network(made_exchange(0.09, 0.5)).label, "steps_set_the_rate");
  Exchange e = made_exchange(0.1, 0);
  e.together.windows = 4;
  EXPECT_EQ(step_and_network(e).label, "too_early");
}

TEST(VerdictRules, SlowRank) {
  Exchange e = made_exchange(0.1, 0);
  e.slowest = {.name = "rank 1", .rank = 1, .windows = 20, .step = 1, .own = 0.9, .others = 0.79};
  EXPECT_EQ(slow_rank({.ranks = 1}).label, "single");
  EXPECT_EQ(slow_rank({.ranks = 2}).label, "empty");
  EXPECT_EQ(slow_rank(e).label, "slow_rank");
  EXPECT_NEAR(figure_of(slow_rank(e), "lost_share"), 0.11, 1e-12);
  e.slowest.noise = 0.05;
  EXPECT_EQ(slow_rank(e).label, "even");
  EXPECT_EQ(slow_rank(e).confidence, Confidence::high);
  e.slowest.noise = 0, e.slowest.others = 0.81;
  EXPECT_EQ(slow_rank(e).label, "even");
  e.ranks = 3;
  EXPECT_EQ(slow_rank(e).confidence, Confidence::low);
  e.fewest_windows = 2;
  EXPECT_EQ(slow_rank(e).label, "too_early");
}

TEST(VerdictRules, GpuWork) {
  EXPECT_EQ(gpu_work({}).label, "empty");
  GpuWork w{.gpu = true, .windows = 20, .achieved = 40, .peak = 100};
  EXPECT_EQ(gpu_work(w).label, "working");
  EXPECT_EQ(gpu_work(w).confidence, Confidence::high);
  w.achieved = 39;
  EXPECT_EQ(gpu_work(w).label, "partly");
  w.achieved = 9;
  EXPECT_EQ(gpu_work(w).label, "hardly");
  w.idle = 0.3, w.utilisation = 90, w.power = 34, w.power_limit = 100;
  EXPECT_EQ(gpu_work(w).label, "spinning");
  w.idle = 0.29;
  EXPECT_EQ(gpu_work(w).label, "hardly");
  w.achieved = 104;
  EXPECT_EQ(gpu_work(w).confidence, Confidence::low);
  w = {.gpu = true, .power = 50, .power_limit = 100};
  EXPECT_EQ(gpu_work(w).label, "working");
  EXPECT_EQ(gpu_work(w).confidence, Confidence::low);
  w.power = 35;
  EXPECT_EQ(gpu_work(w).label, "partly");
  w.power = 34;
  EXPECT_EQ(gpu_work(w).label, "hardly");
}

TEST(VerdictRules, Disk) {
  Storage s;
  EXPECT_EQ(disk(s).label, "empty");
  s.disk = {.probes = 20, .now = 1e11, .total = 1e12};
  EXPECT_EQ(disk(s).label, "ample");
  EXPECT_EQ(disk(s).confidence, Confidence::high);
  EXPECT_TRUE(std::isnan(figure_of(disk(s), "seconds_to_full")));
  s.disk->rate = 1e6;  // full in 100,000 s
  EXPECT_EQ(disk(s).label, "ample");
  s.left = 100'001;
  EXPECT_EQ(disk(s).label, "filling");
  EXPECT_EQ(figure_of(disk(s), "seconds_to_full"), 1e5);
  s.left = kUnknown, s.disk->rate = 1.2e6;
  EXPECT_EQ(disk(s).label, "filling");
  s.disk->rate = 0, s.disk->to_come = 1e11;
  EXPECT_EQ(disk(s).label, "filling");
  s.disk = {.probes = 1, .now = 1.9e10, .total = 1e12};
  EXPECT_EQ(disk(s).label, "nearly_full");
  s.disk = {.probes = 1, .now = 0.9e9, .total = 1e10};
  EXPECT_EQ(disk(s).label, "nearly_full");
}

TEST(VerdictRules, Checkpoints) {
  Storage s;
  EXPECT_EQ(checkpoint_contents(s).label, "none");
  EXPECT_EQ(checkpoint_size(s).label, "none");
  s.checkpoint.step = 0;
  s.checkpoint.files = {{"model.safetensors", "weights", "", 4, true}, {"optimizer.safetensors", "", "", 6, false}};
  EXPECT_EQ(checkpoint_contents(s).label, "complete");
  EXPECT_EQ(checkpoint_size(s).label, "fits");
  EXPECT_EQ(checkpoint_size(s).confidence, Confidence::medium);
  EXPECT_EQ(figure_of(checkpoint_size(s), "inference"), 4);
  s.disk = {.now = 19, .total = 100};
  EXPECT_EQ(checkpoint_size(s).label, "disk_short");
  s.checkpoint.disk_free_bytes = 20;
  EXPECT_EQ(checkpoint_size(s).label, "fits");
  EXPECT_EQ(figure_of(checkpoint_size(s), "room_for"), 2);
  s.checkpoint.problems = {"it is short"};
  EXPECT_EQ(checkpoint_contents(s).label, "damaged");
}

TEST(VerdictRules, TrainingSet) {
  EXPECT_EQ(training_set(std::nullopt).label, "empty");
  PreparedStats stats{.copies = 2, .raw_pairs = 1000, .train_pairs = 1802};
  EXPECT_EQ(training_set(stats).label, "fine");
  EXPECT_EQ(figure_of(training_set(stats), "dropped_pairs"), 99);
  stats.target.unknown_percent = 1;
  EXPECT_EQ(training_set(stats).label, "many_unknown");
  stats.dropped = {{"empty", 60}, {"long", 40}};
  EXPECT_EQ(training_set(stats).label, "much_dropped");
}

}  // namespace

}  // namespace tandem::observe
