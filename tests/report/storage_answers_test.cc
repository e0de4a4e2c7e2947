// Labelled cases of disks, training sets and checkpoints, each over many draws of sizes.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "asked.h"
#include "observe/made_run.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

using testing::ask;
using testing::Asked;
using testing::MadeRun;

constexpr int kSeeds = 100;
constexpr double kGiga = 1e9;

// A run of 20,000 steps in some 35 minutes of at most 40,000, and a disk beside it.
struct MadeDisk {
  double total = 200 * kGiga;
  double free = 100 * kGiga;    // at the start
  double by_hour = 0;           // bytes that it fills with
  double checkpoint = 0;        // bytes; one more every 20 probes, the oldest goes at the next probe
  double noise = 0.01 * kGiga;  // of other programs
  std::function<double(double)> taken = [](double) { return 0.0; };  // bytes by others, of the share of the run done
  int points = 200;
  int64_t max_steps = 40000;
  bool ended = false;

  Asked of(uint64_t seed) const {
    observe::RunData run = MadeRun{}.make(seed);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    observe::RankMetrics& m = run.ranks[0];
    if (ended) {
      m.events.push_back({.step = m.last_step(), .time = m.train.back().time, .event = "end", .details = "done"});
    }
    const double begin = m.train.front().time, end = m.train.back().time;
    for (int i = 0; i < points; ++i) {
      observe::ProbePoint p;
      p.time = begin + (end - begin) * i / points;
      p.seconds = (end - begin) / points;
      p.disk_total_bytes = total;
      p.disk_free_bytes = free - by_hour * (p.time - begin) / 3600 - (i % 20 == 19 ? checkpoint : 0) +
                          noise * normal(random) - taken(static_cast<double>(i) / points);
      m.probes.push_back(p);
    }
    return ask("disk", run, {.max_steps = max_steps, .schedule = "", .rate_at = {}});
  }
};

struct DiskCase {
  std::string name;
  MadeDisk disk;
  std::string label, says;
};
void PrintTo(const DiskCase& one, std::ostream* out) { *out << one.name; }

class LabelledDisk : public ::testing::TestWithParam<DiskCase> {};

TEST_P(LabelledDisk, GetsTheRightVerdict) {
  const DiskCase& c = GetParam();
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Asked v = c.disk.of(seed);
    ASSERT_EQ(v.label, c.label) << "seed " << seed << ": " << v.answer;
    ASSERT_NE(v.answer.find(c.says), std::string::npos) << "seed " << seed << ": " << v.answer;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LabelledDisk,
    ::testing::Values(
        DiskCase{"ample", {}, "ample", "No"},
        DiskCase{"checkpoints_come_and_go", {.checkpoint = 3 * kGiga}, "ample", "No"},
        DiskCase{"fills_before_the_end", {.by_hour = 150 * kGiga}, "filling", "would be full in"},
        DiskCase{"fills_after_the_end", {.by_hour = 5 * kGiga}, "ample", "of training are left"},
        DiskCase{"fills_within_a_day_and_no_end_is_known", {.by_hour = 10 * kGiga, .max_steps = 0}, "filling", "Yes"},
        DiskCase{"filled_until_the_run_was_over", {.by_hour = 150 * kGiga, .ended = true}, "ample", "during the run"},
        DiskCase{"fills_in_a_month", {.by_hour = 0.1 * kGiga, .noise = 1e5, .max_steps = 0}, "ample", "No"},
        DiskCase{"nearly_full", {.free = 2 * kGiga}, "nearly_full", "It nearly is"},
        DiskCase{"small_and_nearly_full", {.total = 10 * kGiga, .free = 0.9 * kGiga}, "nearly_full", "is free"},
        // Some 35 minutes are left; what a line through all probes would say is wrong each time.
        DiskCase{"a_copy_once", {.taken = [](double share) { return share > 0.5 ? 60 * kGiga : 0; }}, "ample", "No: "},
        DiskCase{"filled_and_freed",
                 {.taken = [](double share) { return share < 0.7 ? 120 * kGiga * share : 0; }},
                 "ample",
                 "No: "},
        DiskCase{"stopped_filling",
                 {.taken = [](double share) { return 200 * kGiga * std::min(share, 0.3); }},
                 "ample",
                 "No: "},
        DiskCase{"freed_once_and_fills",
                 {.taken = [](double share) { return (share < 0.3 ? 80 : 100 * (share - 0.3)) * kGiga; }},
                 "filling",
                 "would be full in"},
        DiskCase{"fills_lately",
                 {.taken = [](double share) { return 200 * kGiga * std::max(share - 0.7, 0.0); }},
                 "filling",
                 "would be full in"},
        DiskCase{"one_probe", {.points = 1}, "ample", "free"},
        DiskCase{"no_probe", {.points = 0}, "empty", "not recorded"}),
    [](const auto& tested) { return tested.param.name; });

// A stair of checkpoints that ends where the config says, seen from halfway up.
TEST(StorageAnswers, CheckpointsOfTheRunAreNoTrend) {
  for (const double free : {40 * kGiga, 20 * kGiga}) {
    observe::RunData run = MadeRun{}.make(1);
    observe::RankMetrics& m = run.ranks[0];
    observe::CheckpointFacts facts{.kept = 6, .kept_bytes = 12 * kGiga, .most_kept = 12};
    int written = 0;
    for (observe::TrainPoint& point : m.train) {
      point.checkpoint_seconds = point.step % 3000 == 0 ? 1 : 0;
      written += point.step % 3000 == 0 ? 1 : 0;
      observe::ProbePoint p;
      p.time = point.time, p.disk_total_bytes = 200 * kGiga, p.disk_free_bytes = free - 2 * kGiga * written;
      m.probes.push_back(p);
    }
    const observe::RunPlan plan{.max_steps = 200000, .schedule = "", .rate_at = {}};
    EXPECT_EQ(ask("disk", run, plan).label, "filling");
    const Asked v = ask("disk", run, plan, facts);
    EXPECT_EQ(v.figure("checkpoints_to_come"), 12 * kGiga);
    EXPECT_EQ(v.label, free == 40 * kGiga ? "ample" : "filling") << v.answer;
    EXPECT_EQ(v.answer.find("which is more") != std::string::npos, free == 20 * kGiga) << v.answer;
  }
}

TEST(StorageAnswers, TimeUntilTheDiskIsFull) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const MadeDisk made{.by_hour = 60 * kGiga};
    const Asked v = made.of(seed);
    EXPECT_NEAR(v.figure("filling_rate") * 3600, 60 * kGiga, 1 * kGiga);
    EXPECT_NEAR(v.figure("seconds_to_full"), v.figure("free") / (60 * kGiga) * 3600, 120);
  }
}

observe::PreparedStats made_stats(double raw, double dropped, double unknown) {
  const auto side = [&](double bytes) {
    observe::PreparedSide s;
    s.raw_lines = raw, s.raw_bytes = bytes, s.cleaned_bytes = 0.97 * bytes, s.cleaned_words = bytes / 6;
    s.encoded_bytes = bytes / 2, s.tokens = bytes / 4, s.vocabulary = 32768, s.unknown_percent = unknown;
    return s;
  };
  observe::PreparedStats stats;
  stats.raw_pairs = raw, stats.train_pairs = raw - dropped;
  stats.dropped = {{"empty", dropped / 4}, {"length ratio", dropped - dropped / 4}, {"duplicate", 0}};
  stats.source = side(607e6), stats.target = side(678e6);
  return stats;
}

Asked ask_training_set(const std::optional<observe::PreparedStats>& stats) {
  observe::RunData run;
  run.ranks.emplace_back();
  run.stats = stats;
  return ask("training_set", run);
}

TEST(StorageAnswers, TrainingSet) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const double raw = 1e4 + static_cast<double>(random() % 100'000'000);
    const double few = std::floor(raw * 0.05), many = std::floor(raw * 0.3);
    EXPECT_EQ(ask_training_set(made_stats(raw, few, 0.01)).label, "fine");
    EXPECT_EQ(ask_training_set(made_stats(raw, many, 0.01)).label, "much_dropped");
    EXPECT_EQ(ask_training_set(made_stats(raw, few, 3)).label, "many_unknown");
  }
  const Asked v = ask_training_set(made_stats(4'562'102, 37'234, 0.002));
  EXPECT_NE(v.answer.find("4,524,868 pairs of 4,562,102 raw lines"), std::string::npos) << v.answer;
  EXPECT_NE(v.answer.find("607 MB (579 MiB)"), std::string::npos) << v.answer;
  EXPECT_NE(v.answer.find("length ratio"), std::string::npos) << v.answer;
  EXPECT_EQ(v.answer.find("duplicate"), std::string::npos) << "what dropped nothing is not named: " << v.answer;
  observe::PreparedStats copied = made_stats(29'000, 0, 0);
  copied.copies = 16;
  copied.train_pairs *= 16;
  const Asked copies = ask_training_set(copied);
  EXPECT_EQ(copies.label, "fine");
  EXPECT_NE(
      copies.answer.find("464,000 pairs (29,000, 16 times each, in other pieces) of 29,000 raw lines a side; 0 were"),
      std::string::npos)
      << copies.answer;
  EXPECT_EQ(ask_training_set(std::nullopt).label, "empty");
  observe::PreparedStats only_pairs;
  only_pairs.train_pairs = 10;
  const Asked little = ask_training_set(only_pairs);
  EXPECT_EQ(little.label, "fine");
  EXPECT_EQ(little.answer.find("nan"), std::string::npos) << little.answer;
}

TEST(StorageAnswers, StatsOfPrepareAreRead) {
  const testing::TemporaryDirectory directory(testing::memory_directory());
  std::ofstream(directory / "stats.json")
      << R"({"pairs":{"raw":100,"dropped":{"empty":3,"duplicate":7,"odd":"x"},"train":90},"copies":2,"valid_pairs":5,"test_pairs":0,
            "source":{"raw":{"lines":100,"bytes":1000},"cleaned":{"lines":90,"bytes":900,"words":150},
                      "encoded":{"lines":90,"bytes":400,"tokens":200},"vocabulary":64,"unknown_tokens":2,"unknown_percent":1.0},
            "target":{"raw":{"bytes":-5},"unknown_percent":1e300}})";
  const auto stats = observe::read_stats(directory.path());
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->dropped, (std::vector<std::pair<std::string, double>>{{"empty", 3}, {"duplicate", 7}}));
  EXPECT_EQ(stats->valid_pairs, 5);
  EXPECT_EQ(stats->copies, 2);
  EXPECT_EQ(stats->source.raw_bytes, 1000);
  EXPECT_EQ(stats->source.cleaned_words, 150);
  EXPECT_EQ(stats->source.encoded_bytes, 400);
  EXPECT_EQ(stats->source.unknown_percent, 1);
  EXPECT_TRUE(std::isnan(stats->target.raw_bytes));
  EXPECT_TRUE(std::isnan(stats->target.unknown_percent));
}

observe::CheckpointFacts made_checkpoint(double parameters) {
  observe::CheckpointFacts facts{.path = "runs/x/checkpoints/step-00001200", .step = 1200, .parameters = parameters};
  facts.files = {{"model.safetensors", "weights", "the weights, f32", 4 * parameters, true},
                 {"optimizer.safetensors", "optimizer", "Adam's moments", 8 * parameters, false},
                 {"state.json", "training state", "", 900, false},
                 {"source.model", "source tokenizer", "", 800'000, true}};
  facts.kept = 5, facts.most_kept = 5, facts.kept_bytes = 5 * 12 * parameters;
  facts.disk_free_bytes = 100 * parameters;
  return facts;
}

TEST(StorageAnswers, Checkpoint) {
  const observe::RunData run = MadeRun{}.make(1);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    observe::CheckpointFacts facts = made_checkpoint(1e6 + static_cast<double>(random() % 1'000'000'000));
    EXPECT_EQ(ask("checkpoint_contents", run, {}, facts).label, "complete");
    EXPECT_EQ(ask("checkpoint_size", run, {}, facts).label, "fits");
    EXPECT_NEAR(ask("checkpoint_size", run, {}, facts).figure("full") / (12 * facts.parameters), 1, 0.1);
    facts.disk_free_bytes = 13 * facts.parameters;
    EXPECT_EQ(ask("checkpoint_size", run, {}, facts).label, "disk_short");
    facts.problems = {"model.safetensors is too short"};
    EXPECT_EQ(ask("checkpoint_contents", run, {}, facts).label, "damaged");
  }
  const observe::CheckpointFacts base = made_checkpoint(60'880'896);
  const Asked size = ask("checkpoint_size", run, {}, base), contents = ask("checkpoint_contents", run, {}, base);
  EXPECT_NE(size.answer.find("731 MB (697 MiB) in full, of which translating needs 244 MB"), std::string::npos)
      << size.answer;
  EXPECT_NE(size.answer.find("5 kept of at most 5 take 3.65 GB"), std::string::npos) << size.answer;
  EXPECT_NE(contents.answer.find("optimizer.safetensors 487 MB (Adam's moments)"), std::string::npos)
      << contents.answer;
  EXPECT_EQ(ask("checkpoint_contents", run, {}, {}).label, "none");
  EXPECT_EQ(ask("checkpoint_size", run, {}, {}).label, "none");
}

TEST(StorageAnswers, FreeDiskComesFromTheProbesWhereTheFactsHaveNone) {
  observe::RunData run = MadeRun{}.make(1);
  observe::ProbePoint probe;
  probe.time = 1.7e9, probe.disk_free_bytes = 5e9, probe.disk_total_bytes = 1e11;
  run.ranks[0].probes.push_back(probe);
  observe::CheckpointFacts facts = made_checkpoint(1e8);
  facts.disk_free_bytes = observe::kUnknown;
  EXPECT_EQ(ask("checkpoint_size", run, {}, facts).figure("disk_free"), 5e9);
}

}  // namespace

}  // namespace tandem::report
