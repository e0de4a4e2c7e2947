#include "report/curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "observe/made_run.h"

namespace tandem::report {

namespace {

// The curve of training NLL with at most so many points.
Column nll_of(const std::vector<std::pair<double, double>>& nll_and_steps, size_t most) {
  observe::RankMetrics metrics;
  std::vector<observe::TrainPoint>& all = metrics.train;
  for (const auto& [nll, steps] : nll_and_steps) {
    observe::TrainPoint point;
    point.step = static_cast<int64_t>(all.size()) + 1;
    point.nll = nll;
    point.steps = steps;
    all.push_back(point);
  }
  return curves_of({.name = "", .ranks = {metrics}, .config = "", .stats = {}}, {}, most).tables[0].columns[0];
}

TEST(Thinned, KeepsMeanLeastAndGreatest) {
  const Column column = nll_of({{1, 1}, {4, 2}, {5, 1}, {7, 1}, {9, 1}}, 3);
  ASSERT_EQ(column.mean.size(), 3U);
  EXPECT_DOUBLE_EQ(column.mean[0], 3);
  EXPECT_EQ(column.low[0], 1);
  EXPECT_EQ(column.high[0], 4);
  EXPECT_DOUBLE_EQ(column.mean[1], 6);
  EXPECT_DOUBLE_EQ(column.mean[2], 9);
}

TEST(Thinned, LeavesOutWhatIsNotFinite) {
  const double infinite = std::numeric_limits<double>::infinity();
  const Column column = nll_of({{observe::kUnknown, 1}, {4, 2}, {infinite, 1}, {-infinite, 1}}, 2);
  ASSERT_EQ(column.mean.size(), 2U);
  EXPECT_DOUBLE_EQ(column.mean[0], 4);
  EXPECT_TRUE(std::isnan(column.mean[1]));
  EXPECT_TRUE(column.low.empty());
}

TEST(Thinned, FewPointsStayAsTheyAre) {
  const Column column = nll_of({{1, 1}, {4, 2}}, 100);
  EXPECT_EQ(column.mean, (std::vector<double>{1, 4}));
  EXPECT_TRUE(column.low.empty());
}

TEST(Curves, BleuHasItsInterval) {
  observe::RunData run = testing::MadeRun{}.make(1);
  std::vector<observe::ValidPoint>& valid = run.ranks[0].valid;
  const auto bleu = [&](size_t most) {
    const Curves curves = curves_of(run, {}, most);
    const auto& columns = curves.tables[1].columns;
    return *std::find_if(columns.begin(), columns.end(), [](const Column& c) { return c.name == "bleu"; });
  };
  EXPECT_TRUE(bleu(1000).low.empty()) << "of a run without intervals";
  for (size_t i = 1; i < valid.size(); ++i) {  // the first is of an earlier version
    valid[i].bleu_low = valid[i].bleu - 1;
    valid[i].bleu_high = valid[i].bleu + 2;
  }
  const Column all = bleu(1000);
  ASSERT_EQ(all.low.size(), valid.size());
  ASSERT_EQ(all.high.size(), valid.size());
  EXPECT_EQ(all.low[0], valid[0].bleu);
  EXPECT_EQ(all.high[0], valid[0].bleu);
  EXPECT_EQ(all.low[7], valid[7].bleu_low);
  EXPECT_EQ(all.mean[7], valid[7].bleu);
  EXPECT_EQ(all.high[7], valid[7].bleu_high);
  const Column pairs = bleu(valid.size() / 2);
  EXPECT_EQ(pairs.low[1], std::min(valid[2].bleu_low, valid[3].bleu_low));
  EXPECT_EQ(pairs.high[1], std::max(valid[2].bleu_high, valid[3].bleu_high));
}

const Chart* chart_of(const Curves& curves, const std::string& key) {
  for (const Chart& chart : curves.charts) {
    if (chart.key == key) {
      return &chart;
    }
  }
  return nullptr;
}

TEST(Curves, OnlyWhatHasPointsIsACurve) {
  const Curves curves = curves_of(testing::MadeRun{}.make(1), {}, 1000);
  ASSERT_NE(chart_of(curves, "loss"), nullptr);
  EXPECT_EQ(chart_of(curves, "loss")->lines.size(), 4U);
  EXPECT_EQ(chart_of(curves, "power"), nullptr);
  EXPECT_EQ(chart_of(curves, "rank_step"), nullptr);
  const Chart* step = chart_of(curves, "step");
  ASSERT_NE(step, nullptr);
  EXPECT_TRUE(step->stacked);
  for (const Line& line : step->lines) {
    EXPECT_NE(line.name, "exposed communication");  // of one rank
  }
  EXPECT_TRUE(curves_of({.name = "", .ranks = {{}}, .config = "", .stats = {}}, {}, 10).charts.empty());
}

TEST(Curves, PlannedRateStandsBesideTheApplied) {
  observe::RunPlan plan;
  plan.rate_at = [](int64_t step) { return 1e-6 * static_cast<double>(step); };
  const Curves curves = curves_of(testing::MadeRun{}.make(1), plan, 1000);
  ASSERT_EQ(chart_of(curves, "learning_rate")->lines.size(), 2U);
  const Column& planned = curves.tables[0].columns.back();
  EXPECT_EQ(planned.name, "planned_learning_rate");
  EXPECT_DOUBLE_EQ(planned.mean[0], 1e-6 * 99);
}

TEST(Curves, EveryRankHasItsOwnAndProbesLieBetweenSteps) {
  observe::RunData run = testing::MadeRun{}.make(1);
  observe::RankMetrics second = run.ranks[0];
  second.rank = 1;
  const std::vector<observe::TrainPoint> train = run.ranks[0].train;
  observe::ProbePoint probe;
  probe.time = (train[3].time + train[4].time) / 2;
  probe.seconds = 10;
  probe.gpu_power_watts = 45;
  probe.network_sent_bytes = 125e6;
  probe.network_link_bits_per_second = 1e8;
  second.probes = {probe};
  run.ranks.push_back(second);
  const Curves curves = curves_of(run, {}, 1000);
  EXPECT_EQ(chart_of(curves, "rank_step")->lines.size(), 2U);
  ASSERT_NE(chart_of(curves, "power"), nullptr);
  EXPECT_EQ(chart_of(curves, "power")->lines[0].name, "power, rank 1");
  const Table& table = curves.tables.back();
  EXPECT_EQ(table.name, "probe 1");
  EXPECT_NEAR(table.step[0], 450, 1);
  EXPECT_GT(table.hours[0], train[3].elapsed_seconds / 3600);
  EXPECT_LT(table.hours[0], train[4].elapsed_seconds / 3600);
  for (const Column& column : table.columns) {
    if (column.name == "sent" || column.name == "link") {
      EXPECT_DOUBLE_EQ(column.mean[0], 12.5) << column.name;  // MB/s: 100 Mbit/s
    }
  }
}

}  // namespace

}  // namespace tandem::report
