#include "observe/run_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "observe/metrics.h"
#include "temporary_directory.h"

namespace tandem::observe {

namespace {

using testing::TemporaryDirectory;

Record train(int64_t step, double time, double nll = 2) {
  Record record{.kind = "train", .step = step, .time = time};
  record.add("loss", nll + 1).add("nll", nll).add("steps_per_second", 10).add("pairs", 7).add("target_tokens", 70);
  record.add("compute_seconds", 9).add("data_seconds", 1).add("elapsed_seconds", static_cast<double>(step) / 10);
  return record;
}

Record valid(int64_t step, double time, double nll) {
  return Record{.kind = "valid", .step = step, .time = time}
      .add("nll", nll)
      .add("train_nll", nll - 0.1)
      .add("bleu", 20)
      .add("bleu_low", 19)
      .add("bleu_high", 21.5);
}

RankMetrics read_text(const std::string& text) {
  TemporaryDirectory directory(testing::memory_directory());
  std::ofstream(directory / "0.jsonl", std::ios::binary) << text;
  return read_rank(directory / "0.jsonl");
}

std::string lines(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    text += to_json(record) + "\n";
  }
  return text;
}

TEST(RunReader, ReadsEveryKind) {
  const Record sample = Record{.kind = "sample", .step = 200, .time = 3}
                            .add("index", 0)
                            .add("source", "Grüße \"x\"")
                            .add("reference", "b")
                            .add("translation", "c");
  const Record end = Record{.kind = "event", .step = 200, .time = 4}.add("event", "end").add("details", "done");
  const RankMetrics m = read_text(lines({train(100, 1), train(200, 2), valid(200, 3, 1.5), sample, end}));
  ASSERT_EQ(m.train.size(), 2U);
  EXPECT_EQ(m.train[1].steps, 100);
  EXPECT_EQ(m.train[1].pairs, 700);
  EXPECT_EQ(m.train[1].step_seconds(), 10);
  ASSERT_EQ(m.valid.size(), 1U);
  EXPECT_EQ(m.valid[0].nll, 1.5);
  EXPECT_EQ(m.valid[0].bleu_low, 19);
  EXPECT_EQ(m.valid[0].bleu_high, 21.5);
  ASSERT_EQ(m.samples.size(), 1U);
  EXPECT_EQ(m.samples[0].source, "Grüße \"x\"");
  ASSERT_EQ(m.events.size(), 1U);
  EXPECT_EQ(m.events[0].details, "done");
  EXPECT_EQ(m.last_step(), 200);
  EXPECT_EQ(m.elapsed_seconds(), 20);
  EXPECT_EQ(m.unreadable, 0);
}

TEST(RunReader, LeavesOutWhatIsNoRecord) {
  const std::string good = to_json(train(100, 1));
  const std::string garbage("\x00\xff\x7f{{{\x01", 7);
  const std::string bad[] = {garbage,
                             "[1, 2, 3]",
                             "null",
                             R"({"kind": 3, "step": 1, "time": 1})",
                             R"({"kind": "train", "step": "x", "time": 1})",
                             R"({"kind": "train", "step": 1.5, "time": 1})",
                             R"({"kind": "train", "step": -5, "time": 1})",
                             R"({"kind": "train", "step": 99999999999999999999, "time": 1})",
                             R"({"kind": "train", "step": 9007199254740993, "time": 1})",
                             R"({"kind": "train", "step": 1, "time": "NaN"})",
                             std::string(100000, '['),
                             std::string(3 << 20, 'x'),
                             good.substr(0, good.size() / 2)};
  for (const std::string& line : bad) {
    const RankMetrics m = read_text(good + "\n" + line + "\n\n  \r\n" + to_json(train(200, 2)) + "\n" + line);
    EXPECT_EQ(m.train.size(), 2U) << line.substr(0, 60);
    EXPECT_EQ(m.unreadable, 2) << line.substr(0, 60);
  }
}

TEST(RunReader, WrongTypesAndHugeNumbersDoNotSpread) {
  const RankMetrics m = read_text(
      R"({"kind":"train","step":100,"time":1,"nll":"NaN","loss":[1],"compute_seconds":1e300,"data_seconds":-4,"pairs":"x"})"
      "\n"
      R"({"kind":"valid","step":100,"time":1,"nll":"Infinity","bleu":{"a":1},"seconds":1e99})"
      "\n");
  ASSERT_EQ(m.train.size(), 1U);
  EXPECT_TRUE(std::isnan(m.train[0].nll));
  EXPECT_EQ(m.train[0].unfinite, 1);
  EXPECT_EQ(m.train[0].step_seconds(), 0);
  EXPECT_EQ(m.train[0].pairs, 0);
  EXPECT_TRUE(std::isinf(m.valid[0].nll));
  EXPECT_TRUE(std::isnan(m.valid[0].bleu));
  EXPECT_TRUE(std::isnan(m.valid[0].seconds));
}

TEST(RunReader, IntervalsThatCannotBeAreNotKnown) {
  for (const char* interval : {"", R"(,"bleu_low":19)", R"(,"bleu_low":21,"bleu_high":22)",
                               R"(,"bleu_low":1,"bleu_high":2)", R"(,"bleu_low":-1,"bleu_high":22)",
                               R"(,"bleu_low":19,"bleu_high":1e300)", R"(,"bleu_low":"NaN","bleu_high":"NaN")"}) {
    const RankMetrics m =
        read_text(fmt::format(R"({{"kind":"valid","step":1,"time":1,"bleu":20{}}})", interval) + "\n");
    ASSERT_EQ(m.valid.size(), 1U) << interval;
    EXPECT_EQ(m.valid[0].bleu, 20) << interval;
    EXPECT_TRUE(std::isnan(m.valid[0].bleu_low)) << interval;
    EXPECT_TRUE(std::isnan(m.valid[0].bleu_high)) << interval;
  }
}

TEST(RunReader, RestartSupersedesLaterSteps) {
  const RankMetrics m = read_text(
      lines({train(100, 1), train(200, 2, 5), valid(200, 3, 5), train(300, 4, 5), train(200, 5, 1), valid(200, 6, 1)}));
  ASSERT_EQ(m.train.size(), 2U);
  EXPECT_EQ(m.train[1].step, 200);
  EXPECT_EQ(m.train[1].nll, 1);
  ASSERT_EQ(m.valid.size(), 1U);
  EXPECT_EQ(m.valid[0].nll, 1);
  EXPECT_EQ(m.superseded, 1);
}

TEST(RunReader, StaleLineIsNoRestart) {
  const RankMetrics m = read_text(lines({train(100, 1), train(200, 20), train(100, 10), train(300, 30)}));
  EXPECT_EQ(m.train.size(), 3U);
  EXPECT_EQ(m.out_of_order, 1);
  EXPECT_EQ(m.superseded, 0);
}

TEST(RunReader, LongRunIsThinnedAndItsSumsStayExact) {
  std::string text;
  for (int64_t step = 1; step <= 60000; ++step) {
    text += fmt::format(R"({{"kind":"train","step":{},"time":{},"loss":3,"nll":2,"steps_per_second":10,)"
                        R"("pairs":5,"compute_seconds":0.1,"data_seconds":0}})"
                        "\n",
                        step, step);
  }
  const RankMetrics m = read_text(text);
  EXPECT_LE(m.train.size(), 16384U);
  double steps = 0, pairs = 0, seconds = 0;
  int64_t last = 0;
  for (const TrainPoint& point : m.train) {
    EXPECT_GT(point.step, last);
    last = point.step;
    steps += point.steps;
    pairs += point.pairs;
    seconds += point.compute_seconds;
    EXPECT_NEAR(point.nll, 2, 1e-12);
  }
  EXPECT_EQ(steps, 60000);
  EXPECT_EQ(pairs, 300000);
  EXPECT_NEAR(seconds, 6000, 1e-6);
  EXPECT_EQ(last, 60000);
}

TEST(RunReader, RunDirectoryWithSeveralRanks) {
  TemporaryDirectory directory(testing::memory_directory());
  EXPECT_NE(testing::message_of([&] { read_run(directory.path()); }), "");
  EXPECT_NE(testing::message_of([&] { read_run(directory / "absent"); }), "");
  std::filesystem::create_directories(directory / "metrics");
  EXPECT_TRUE(read_run(directory.path()).main().train.empty());
  for (const char* name : {"10.jsonl", "0.jsonl", "2.jsonl", "x.jsonl", "3.txt"}) {
    std::ofstream(directory / "metrics" / name) << lines({train(100, 1)});
  }
  std::ofstream(directory / "config.toml") << "seed = 1\n";
  std::ofstream(directory / "stats.json")
      << R"({"pairs": {"raw": 10, "train": "x"}, "source": {"encoded": {"tokens": 7}}})";
  const RunData run = read_run(directory.path());
  ASSERT_EQ(run.ranks.size(), 3U);
  EXPECT_EQ(run.ranks[2].rank, 10);
  EXPECT_EQ(run.config, "seed = 1\n");
  const auto stats = read_stats(directory.path());
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->copies, 1);  // of a file that does not say
  EXPECT_EQ(stats->raw_pairs, 10);
  EXPECT_TRUE(std::isnan(stats->train_pairs));
  EXPECT_EQ(stats->source.tokens, 7);
  EXPECT_FALSE(read_stats(directory / "metrics"));
}

}  // namespace

}  // namespace tandem::observe
