#include "report/watched_runs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "observe/metrics.h"
#include "report/forms.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;

void append(const fs::path& run, int64_t step) {
  fs::create_directories(run / "metrics");
  observe::Record record{.kind = "train", .step = step, .time = 1.7e9 + static_cast<double>(step)};
  record.add("nll", 2.0).add("loss", 3.0).add("compute_seconds", 1.0).add("steps_per_second", 10.0);
  std::ofstream(run / "metrics" / "0.jsonl", std::ios::app) << to_json(record) << "\n";
}

TEST(FindRuns, FindsThemBelowADirectory) {
  const testing::TemporaryDirectory directory;
  append(directory / "a", 1);
  append(directory / "more" / "b", 1);
  append(directory / ".hidden", 1);
  append(directory / "one" / "two" / "three" / "four", 1);  // too deep
  fs::create_directories(directory / "nothing");
  fs::create_directory_symlink(directory / "..", directory / "loop");
  EXPECT_EQ(find_runs({directory.path()}), (std::vector<fs::path>{directory / "a", directory / "more" / "b"}));
  EXPECT_EQ(find_runs({directory / "a", directory / "a"}).size(), 1U);
  EXPECT_EQ(find_runs({directory / "a" / "metrics" / "0.jsonl"}).size(), 1U);
  EXPECT_TRUE(find_runs({directory / "nothing"}).empty());
  EXPECT_THROW(find_runs({directory / "missing"}), Error);
}

TEST(WatchedRuns, ReadsOnlyWhatChanged) {
  const testing::TemporaryDirectory directory;
  append(directory / "a", 1);
  append(directory / "b", 1);
  std::vector<fs::path> read;
  WatchedRuns runs({directory.path()}, [&](const fs::path& run) {
    read.push_back(run);
    return make_report(observe::read_run(run), {}, {}, 0, 0);
  });
  EXPECT_TRUE(runs.update(100));
  EXPECT_EQ(read.size(), 2U);
  EXPECT_FALSE(runs.update(105));
  EXPECT_EQ(read.size(), 2U);
  append(directory / "b", 2);
  EXPECT_TRUE(runs.update(110));
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read.back(), directory / "b");
  ASSERT_EQ(runs.reports().size(), 2U);
  EXPECT_EQ(runs.reports()[1].run.main().last_step(), 2);
  append(directory / "c", 3);  // a new run is found
  EXPECT_TRUE(runs.update(130));
  EXPECT_EQ(runs.reports().size(), 3U);
  EXPECT_TRUE(runs.update(200));  // judged anew after a minute
}

TEST(WatchedRuns, ARunThatGoesAwayKeepsItsLastReport) {
  const testing::TemporaryDirectory directory;
  append(directory / "a", 1);
  WatchedRuns runs({directory.path()},
                   [](const fs::path& run) { return make_report(observe::read_run(run), {}, {}, 0, 0); });
  EXPECT_TRUE(runs.update(0));
  fs::remove_all(directory / "a");
  runs.update(20);
  EXPECT_EQ(runs.reports().size(), 1U);
}

TEST(WatchText, ScreensStayWithinTheWindow) {
  const testing::TemporaryDirectory directory;
  append(directory / "a", 1200);
  const RunReport report = make_report(observe::read_run(directory / "a"), {}, {}, 0, 0);
  const std::string line = watch_line(report);
  EXPECT_NE(line.find("step 1,200"), std::string::npos);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const auto& [columns, rows] : {std::pair(80, 24), {40, 10}, {1, 1}, {200, 100}}) {
    const std::string screen = watch_screen(std::span(&report, 1), columns, rows);
    EXPECT_LE(std::count(screen.begin(), screen.end(), '\n'), std::max(rows, 2));
    std::istringstream lines(screen);
    for (std::string shown; std::getline(lines, shown);) {
      EXPECT_LE(shown.size(), static_cast<size_t>(std::max(columns, 60))) << shown;
    }
  }
  EXPECT_FALSE(all_ended({}));
  EXPECT_FALSE(all_ended(std::span(&report, 1)));
  EXPECT_NE(watch_screen({}, 80, 24).find("no run"), std::string::npos);
}

}  // namespace

}  // namespace tandem::report
