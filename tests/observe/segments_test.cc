#include "observe/segments.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "observe/fields.h"
#include "observe/metrics_writer.h"
#include "observe/run_reader.h"
#include "read_metrics.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

namespace fs = std::filesystem;
using testing::memory_directory;
using testing::read_metrics;
using testing::TemporaryDirectory;

// A window of 10 steps as the trainer writes it.
Record train(int64_t step, std::mt19937_64& random) {
  const auto draw = [&](double high) { return std::uniform_real_distribution<double>(0, high)(random); };
  Record r{.kind = "train", .step = step, .time = 1000 + static_cast<double>(step)};
  const double compute = 1 + draw(1), communication = draw(1), data = draw(0.1);
  r.add("steps", 10).add("step_seconds", compute + communication + data);
  r.add("loss", 3 + draw(1)).add("nll", 2 + draw(1)).add("learning_rate", 1e-3 / static_cast<double>(step));
  r.add("steps_per_second", 10 / (compute + communication + data)).add("pairs", 100 + std::floor(draw(10)));
  r.add("target_tokens", 2000 + std::floor(draw(500))).add("compute_seconds", compute);
  r.add("communication_seconds", communication).add("data_seconds", data).add("sent_bytes", 1e6).add("flops", 1e12);
  r.add("peak_memory_bytes", 1e9 + std::floor(draw(100)));
  return r;
}

Record probe(int64_t step, double time) {
  return Record{.kind = "probe", .step = step, .time = time}
      .add("seconds", 5)
      .add("gpu_power_watts", 100 + static_cast<double>(step % 7))
      .add("network_sent_bytes", 1000)
      .add("disk_free_bytes", 1e12 - static_cast<double>(step));
}

Record other(const char* kind, int64_t step) {
  return Record{.kind = kind, .step = step, .time = 1000 + static_cast<double>(step)}.add("text", "zwei \"Hunde\"\n");
}

// A run of `windows` windows, with validations, probes, events and starts between.
void write_run(MetricsWriter& writer, int64_t first, int64_t windows, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t window = first; window < first + windows; ++window) {
    const int64_t step = 10 * window;
    if (window % 97 == 1) {
      writer.write(other("setup", step - 10));
    }
    writer.write(train(step, random));
    writer.write(probe(step, 1000.5 + static_cast<double>(step)));
    if (window % 10 == 0) {
      writer.write(other("valid", step));
      writer.write(other("sample", step));
    }
    if (window % 31 == 0) {
      writer.write(other("event", step));
    }
  }
}

uint64_t bytes_in(const fs::path& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    bytes += entry.file_size();
  }
  return bytes;
}

struct Totals {
  double steps = 0, seconds = 0, bytes = 0, flops = 0, tokens = 0, nll = 0, records = 0, probed = 0, sent = 0;
  int64_t last = 0;
  std::map<std::string, int> others;
};

Totals totals(const std::vector<Record>& records) {
  Totals t;
  for (const Record& r : records) {
    const auto number = [&](const char* name) { return r.number(name).value_or(0); };
    if (r.kind == "train") {
      EXPECT_GT(r.step, t.last);
      t.last = r.step;
      t.steps += number("steps");
      t.seconds += number("step_seconds");
      t.bytes += number("sent_bytes");
      t.flops += number("flops");
      t.tokens += number("steps") * number("target_tokens");
      t.nll += number("steps") * number("target_tokens") * number("nll");
      t.records += r.number("records").value_or(1);
    } else if (r.kind == "probe") {
      t.probed += number("seconds");
      t.sent += number("network_sent_bytes");
    } else {
      ++t.others[r.kind];
    }
  }
  return t;
}

TEST(Segments, names_and_what_supersedes) {
  const TemporaryDirectory directory(memory_directory());
  const fs::path active = directory / "0.jsonl";
  for (const char* name : {"0.jsonl", "0.000001-000004.jsonl", "0.000001-000002.jsonl", "0.000004-000004.jsonl",
                           "0.000005-000005.jsonl", ".0.jsonl.partial", "1.000001-000001.jsonl", "0.x-000002.jsonl",
                           "0.000003-000002.jsonl", "0.99999999999999999999-1.jsonl", "0.-.jsonl", "0..jsonl"}) {
    std::ofstream(directory / name) << "{}\n";
  }
  const Segments segments = list_segments(active);
  ASSERT_EQ(segments.closed.size(), 2U);
  EXPECT_EQ(segments.closed[0].path, segment_path(active, 1, 4));
  EXPECT_EQ(segments.closed[1].path, segment_path(active, 5, 5));
  EXPECT_EQ(segments.leftovers.size(), 3U);
  EXPECT_EQ(segments.next(), 6);
}

TEST(Segments, merged_windows_stay_true) {
  Record a{.kind = "train", .step = 100, .time = 1}, b{.kind = "train", .step = 200, .time = 2};
  a.add("steps", 100)
      .add("step_seconds", 10)
      .add("nll", 4)
      .add("target_tokens", 1000)
      .add("sent_bytes", 5)
      .add("steps_per_second", 10);
  a.add("learning_rate", 1e-3).add("elapsed_seconds", 10).add("peak_memory_bytes", 900).add("skipped_steps", 1);
  b.add("steps", 100)
      .add("step_seconds", 30)
      .add("nll", 2)
      .add("target_tokens", 3000)
      .add("sent_bytes", 7)
      .add("steps_per_second", 10.0 / 3);
  b.add("learning_rate", 2e-3).add("elapsed_seconds", 40).add("peak_memory_bytes", 800).add("new_field", 1.5);
  const Record both = merged(a, b);
  EXPECT_EQ(both.step, 200);
  EXPECT_EQ(both.time, 2);
  EXPECT_EQ(both.number("steps"), 200);
  EXPECT_EQ(both.number("step_seconds"), 40);
  EXPECT_EQ(both.number("nll"), 2.5);  // by target tokens
  EXPECT_EQ(both.number("target_tokens"), 2000);
  EXPECT_EQ(both.number("sent_bytes"), 12);
  EXPECT_DOUBLE_EQ(*both.number("steps_per_second"), 5);  // 200 steps in 40 s
  EXPECT_EQ(both.number("learning_rate"), 2e-3);
  EXPECT_EQ(both.number("elapsed_seconds"), 40);
  EXPECT_EQ(both.number("peak_memory_bytes"), 900);
  EXPECT_EQ(both.number("skipped_steps"), 1);
  EXPECT_EQ(both.number("new_field"), 1.5);
  EXPECT_EQ(both.number("records"), 2);
  EXPECT_EQ(both.number("unfinite"), 0);
}

TEST(Segments, a_loss_that_is_not_finite_is_counted_and_does_not_spread) {
  const auto window = [](int64_t step, double nll) {
    return Record{.kind = "train", .step = step, .time = 1}.add("steps", 10).add("loss", nll).add("nll", nll);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Record one = merged(window(10, nan), window(20, 2)), other_way = merged(window(10, 2), window(20, nan));
  EXPECT_EQ(one.number("nll"), 2);
  EXPECT_EQ(one.number("unfinite"), 1);
  EXPECT_EQ(other_way.number("nll"), 2);
  const Record all = merged(window(10, nan), window(20, nan));
  EXPECT_TRUE(std::isnan(*all.number("nll")));
  EXPECT_EQ(all.number("unfinite"), 2);
  EXPECT_EQ(merged(one, all).number("unfinite"), 3);
  EXPECT_EQ(merged(one, all).number("records"), 4);
}

TEST(Segments, merged_probes_stay_true) {
  Record a = probe(10, 1), b = probe(11, 2);
  a.add("gpu_name", "Made").add("gpu_throttle", "idle").add("net.eth0.sent_bytes", 3).add("gpu_throttled_seconds", 5);
  b.add("net.eth0.sent_bytes", 4).add("gpu_throttled_seconds", 0);
  const Record both = merged(a, b);
  EXPECT_EQ(both.number("seconds"), 10);
  EXPECT_EQ(both.number("gpu_power_watts"), 103.5);
  EXPECT_EQ(both.number("network_sent_bytes"), 2000);
  EXPECT_EQ(both.number("net.eth0.sent_bytes"), 7);
  EXPECT_EQ(both.number("gpu_throttled_seconds"), 5);
  EXPECT_EQ(both.number("disk_free_bytes"), 1e12 - 11);
  EXPECT_EQ(*both.text("gpu_name"), "Made");
  EXPECT_EQ(both.text("gpu_throttle"), nullptr) << "of a moment that is over";
}

TEST(Segments, a_long_run_stays_small_and_its_sums_exact) {
  const TemporaryDirectory directory(memory_directory()), plain(memory_directory());
  constexpr int64_t kSegment = 1 << 15, kWindows = 12000;
  {
    MetricsWriter writer(directory / "0.jsonl", -1, kSegment), all(plain / "0.jsonl", -1, INT64_MAX);
    write_run(writer, 1, kWindows, 7);
    write_run(all, 1, kWindows, 7);
  }
  const Totals thinned = totals(read_metrics(directory / "0.jsonl").records),
               whole = totals(read_metrics(plain / "0.jsonl").records);
  EXPECT_EQ(thinned.steps, 10.0 * kWindows);
  EXPECT_EQ(thinned.records, kWindows);
  EXPECT_EQ(thinned.last, whole.last);
  EXPECT_NEAR(thinned.seconds / whole.seconds, 1, 1e-12);
  EXPECT_EQ(thinned.bytes, whole.bytes);
  EXPECT_EQ(thinned.flops, whole.flops);
  EXPECT_NEAR(thinned.tokens / whole.tokens, 1, 1e-12);
  EXPECT_NEAR(thinned.nll / whole.nll, 1, 1e-12);
  EXPECT_EQ(thinned.probed, whole.probed);
  EXPECT_EQ(thinned.sent, whole.sent);
  EXPECT_EQ(thinned.others, whole.others) << "nothing else is thinned";
  EXPECT_LT(bytes_in(directory.path()), bytes_in(plain.path()) / 4);
  const RankMetrics m = read_rank(directory / "0.jsonl");
  double steps = 0;
  for (const TrainPoint& point : m.train) {
    steps += point.steps;
  }
  EXPECT_EQ(steps, 10.0 * kWindows);
  EXPECT_EQ(m.unreadable + m.out_of_order + m.superseded, 0);
}

std::vector<std::string> lines_up_to(const fs::path& path, int64_t last) {
  std::vector<std::string> lines;
  for (const Record& record : read_metrics(path).records) {
    if (record.step > last) {
      break;
    }
    lines.push_back(to_json(record));
  }
  return lines;
}

TEST(Segments, a_cut_at_any_step_leaves_what_came_before) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const TemporaryDirectory directory(memory_directory());
    const fs::path path = directory / "0.jsonl";
    const int64_t windows = 400 + static_cast<int64_t>(random() % 600);
    MetricsWriter writer(path, -1, 1 << 13);
    write_run(writer, 1, windows, seed);
    ASSERT_GT(list_segments(path).closed.size(), 4U);
    const int64_t last = seed % 10 == 0 ? -1 : static_cast<int64_t>(random() % static_cast<uint64_t>(11 * windows));
    const std::vector<std::string> wanted = lines_up_to(path, last);
    if (seed % 2 == 0) {
      writer.cut_after(last);
    } else {
      const MetricsWriter resumed(path, last, 1 << 13);
    }
    EXPECT_EQ(lines_up_to(path, INT64_MAX), wanted) << "seed " << seed;
    if (seed % 2 == 0) {
      write_run(writer, last / 10 + 2, 300, seed + 1);
      EXPECT_EQ(read_rank(path).superseded, 0);
    }
  }
}

TEST(Segments, a_rank_without_its_newest_file_is_found) {
  const TemporaryDirectory directory(memory_directory());
  fs::create_directories(directory / "metrics");
  std::mt19937_64 random(1);
  for (const char* name : {"0.000001-000001.jsonl", "12.000001-000001.jsonl", "03.jsonl", "4.x.jsonl"}) {
    std::ofstream(directory.path() / "metrics" / name) << to_json(train(10, random)) << "\n";
  }
  const RunData run = read_run(directory.path());
  ASSERT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.ranks[1].rank, 12);
  EXPECT_EQ(run.ranks[1].train.size(), 1U);
}

TEST(Segments, files_that_a_killed_process_left_read_the_same_and_go) {
  const TemporaryDirectory directory(memory_directory());
  const fs::path path = directory / "0.jsonl";
  {
    MetricsWriter writer(path, -1, 1 << 13);
    write_run(writer, 1, 500, 3);
  }
  const std::vector<std::string> wanted = lines_up_to(path, INT64_MAX);
  // Thinned, but what it was made of is still there; another half written; the newest closed, no new one begun.
  const Segments segments = list_segments(path);
  const Segment& widest = segments.closed.front();
  ASSERT_GE(widest.files(), 4);
  fs::copy(widest.path, segment_path(path, widest.first, widest.first + widest.files() / 2 - 1));
  fs::copy(widest.path, segment_path(path, widest.last, widest.last));
  std::ofstream(partial_path(path)) << "{\"kind\":\"tr";
  fs::rename(path, segment_path(path, segments.next(), segments.next()));
  EXPECT_EQ(lines_up_to(path, INT64_MAX), wanted);
  const RankMetrics m = read_rank(path);
  EXPECT_EQ(m.unreadable + m.out_of_order + m.superseded, 0);
  const MetricsWriter writer(path, INT64_MAX, 1 << 13);
  EXPECT_EQ(lines_up_to(path, INT64_MAX), wanted);
  EXPECT_TRUE(list_segments(path).leftovers.empty());
}

// Processes that are killed at any moment: the run reads complete up to its last step, over and over.
TEST(Segments, killed_at_any_moment) {
  const TemporaryDirectory directory(memory_directory());
  const fs::path path = directory / "0.jsonl";
  std::mt19937_64 random(1);
  int64_t done = 0;
  for (int round = 0; round < 40 || (done <= 100 && round < 400); ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      MetricsWriter writer(path, 10 * done, 1 << 12);
      write_run(writer, done + 1, 1'000'000, static_cast<uint64_t>(round));
      _exit(0);
    }
    usleep(static_cast<useconds_t>(2000 + random() % 30000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Totals t = totals(read_metrics(path).records);
    ASSERT_EQ(t.steps, static_cast<double>(t.last)) << "round " << round;
    ASSERT_GE(t.last, 0);
    // On from a checkpoint a little before the end, which no thinned window reaches over.
    const std::vector<Record> records = read_metrics(path).records;
    for (auto record = records.rbegin(); record != records.rend(); ++record) {
      if (record->kind == "train" && record->step <= t.last - static_cast<int64_t>(random() % 50)) {
        done = record->step / 10;
        break;
      }
    }
  }
  EXPECT_GT(done, 100);
}

TEST(Segments, a_reader_beside_the_writer_sees_a_complete_run) {
  const TemporaryDirectory directory(memory_directory());
  const fs::path path = directory / "0.jsonl";
  std::atomic<bool> ended = false;
  std::atomic<int> reads = 0;
  std::jthread trainer([&] {
    MetricsWriter writer(path, -1, 1 << 12);
    for (int64_t part = 0; part < 6 || (reads <= 3 && part < 100); ++part) {
      write_run(writer, 1000 * part + 1, 1000, 5);
    }
    ended = true;
  });
  while (!ended) {
    const RankMetrics m = read_rank(path);
    double steps = 0;
    for (const TrainPoint& point : m.train) {
      steps += point.steps;
    }
    EXPECT_EQ(steps, static_cast<double>(m.train.empty() ? 0 : m.train.back().step));
    EXPECT_LE(m.unreadable, 1) << "the line being written";
    ++reads;
  }
  trainer.join();
  EXPECT_GT(reads, 3);
}

// In one file, without thinning.
TEST(Segments, a_hundred_thousand_windows_are_read_at_once) {
  const TemporaryDirectory directory(memory_directory());
  const fs::path path = directory / "metrics" / "0.jsonl";
  fs::create_directories(path.parent_path());
  {
    std::mt19937_64 random(1);
    std::ofstream out(path, std::ios::binary);
    std::string block;
    for (int64_t window = 1; window <= 100'000; ++window) {
      block += to_json(train(10 * window, random)) + "\n";
    }
    out << block;
  }
  const auto begin = std::chrono::steady_clock::now();
  const RunData run = read_run(directory.path());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("microseconds_a_thousand_windows", static_cast<int>(1e4 * seconds));
  EXPECT_EQ(run.main().lines, 100'000);
#ifdef NDEBUG  // the time of an unoptimised build says nothing
  EXPECT_LT(seconds, 2) << "on a machine that may be busy";
#endif
}

}  // namespace
}  // namespace tandem::observe
