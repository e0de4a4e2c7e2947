// Damaged and hostile metrics: truncated, interleaved, shuffled, empty, with numbers that cannot be. Whatever is read,
// no verdict crashes, fails or prints a number that is none. Seconds in a test, an hour with TANDEM_SOAK set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>

#include "observe/made_run.h"
#include "observe/metrics_writer.h"
#include "observe/run_reader.h"
#include "observe/segments.h"
#include "report/run_report.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

double number(Random& random) {
  static constexpr double kOdd[] = {0,   -0.0, -1, 1e-300, 1e300, 1.7e308, -1e300, 1e15, 1e18, 9.1e15,
                                    0.5, 1,    2,  1e9,    1e12,  5e-324,  1e-9,   3.3,  100,  250};
  if (random() % 12 == 0) {
    return random() % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity();
  }
  return random() % 4 == 0 ? kOdd[random() % std::size(kOdd)]
                           : std::exp(std::uniform_real_distribution<double>(-10, 20)(random));
}

std::string text(Random& random) {
  static const std::string kTexts[] = {"",
                                       "<script>alert(1)</script>",
                                       "f32",
                                       "bf16",
                                       "cuda",
                                       "cpu",
                                       "gpu1",
                                       "eth0",
                                       "\xff\xfe",
                                       "\\u0000",
                                       "hardware_thermal",
                                       "skipped",
                                       "rollback",
                                       "end",
                                       std::string(500, 'x'),
                                       "zwei\nHunde"};
  return kTexts[random() % std::size(kTexts)];
}

const char* const kNumbers[] = {"steps",
                                "step_seconds",
                                "loss",
                                "nll",
                                "accuracy",
                                "learning_rate",
                                "gradient_norm",
                                "epoch",
                                "pairs",
                                "source_tokens",
                                "target_tokens",
                                "compute_seconds",
                                "communication_seconds",
                                "transfer_seconds",
                                "data_seconds",
                                "validation_seconds",
                                "checkpoint_seconds",
                                "sent_bytes",
                                "received_bytes",
                                "flops",
                                "skipped_steps",
                                "elapsed_seconds",
                                "steps_per_second",
                                "records",
                                "unfinite",
                                "train_nll",
                                "bleu",
                                "bleu_low",
                                "bleu_high",
                                "chrf",
                                "seconds",
                                "schema",
                                "rank",
                                "ranks",
                                "node",
                                "nodes",
                                "parameters",
                                "sharded",
                                "planned_sent_bytes",
                                "planned_received_bytes",
                                "peak_flops",
                                "gpu_power_watts",
                                "gpu_power_limit_watts",
                                "gpu_sm_clock_mhz",
                                "gpu_utilisation_percent",
                                "gpu_throttled_seconds",
                                "cpu_busy",
                                "disk_free_bytes",
                                "disk_total_bytes",
                                "network_sent_bytes",
                                "network_received_bytes",
                                "network_sent_packets",
                                "network_received_dropped",
                                "network_link_bits_per_second",
                                "index"};
const char* const kTextFields[] = {"host",      "device",       "backend",       "wire",    "interface",
                                   "gpu_name",  "gpu_throttle", "event",         "details", "source",
                                   "reference", "translation",  "bleu_signature"};
const char* const kKinds[] = {"train", "train", "train",  "valid", "probe",
                              "probe", "setup", "sample", "event", "other"};

// Anything at all, in the form of a record.
observe::Record any_record(Random& random, int64_t step, double time) {
  observe::Record record{.kind = kKinds[random() % std::size(kKinds)], .step = step, .time = time};
  const uint64_t sparse = 1 + random() % 8;
  for (const char* name : kNumbers) {
    if (random() % sparse == 0) {
      record.add(name, number(random));
    }
  }
  for (const char* name : kTextFields) {
    if (random() % (4 * sparse) == 0) {
      record.add(name, text(random));
    }
  }
  return record;
}

// A run as it should be, of one rank.
std::string sound_run(Random& random, int rank, int ranks) {
  std::string lines;
  const auto value = [&](double high) { return std::uniform_real_distribution<double>(0.1 * high, high)(random); };
  const int windows = static_cast<int>(random() % 40);
  for (int window = 0; window <= windows; ++window) {
    const int64_t step = 10 * window;
    const double time = 1.7e9 + 5.0 * window;
    if (window == 0) {
      lines += to_json(observe::Record{.kind = "setup", .step = 0, .time = time}
                           .add("schema", 1)
                           .add("rank", rank)
                           .add("ranks", ranks)
                           .add("node", rank)
                           .add("planned_sent_bytes", 1e6)
                           .add("peak_flops", 1e13)
                           .add("wire", "f32")
                           .add("host", "gpu1")
                           .add("backend", "cuda")) +
               "\n";
      continue;
    }
    lines += to_json(observe::Record{.kind = "train", .step = step, .time = time}
                         .add("steps", 10)
                         .add("step_seconds", value(9))
                         .add("loss", value(4))
                         .add("nll", value(3))
                         .add("learning_rate", 1e-3)
                         .add("epoch", 0.1 * window)
                         .add("pairs", 100)
                         .add("target_tokens", 2000)
                         .add("compute_seconds", value(3))
                         .add("communication_seconds", value(3))
                         .add("transfer_seconds", value(5))
                         .add("data_seconds", value(1))
                         .add("sent_bytes", 1e7)
                         .add("received_bytes", 1e7)
                         .add("flops", value(1e13))
                         .add("elapsed_seconds", 5.0 * window)) +
             "\n";
    lines += to_json(observe::Record{.kind = "probe", .step = step, .time = time + 1}
                         .add("seconds", 5)
                         .add("gpu_power_watts", value(250))
                         .add("gpu_power_limit_watts", 250)
                         .add("gpu_utilisation_percent", 100)
                         .add("network_sent_bytes", value(2e7))
                         .add("network_received_bytes", value(2e7))
                         .add("network_sent_packets", 1e4)
                         .add("disk_free_bytes", value(1e11))
                         .add("disk_total_bytes", 1e11)) +
             "\n";
    if (window % 3 == 0) {
      lines += to_json(observe::Record{.kind = "valid", .step = step, .time = time + 2}
                           .add("nll", value(3))
                           .add("train_nll", value(3))
                           .add("bleu", value(30))
                           .add("bleu_low", value(29))
                           .add("bleu_high", value(31))) +
               "\n";
    }
  }
  return lines;
}

std::string hostile_line(Random& random) {
  switch (random() % 6) {
    case 0:
      return std::string(random() % 3000, "[{\"\\x"[random() % 5]);
    case 1:
      return "{\"kind\":\"train\",\"step\":" + std::to_string(random()) + ",\"time\":" + std::to_string(random()) + "}";
    case 2:
      return "{\"kind\":\"train\",\"step\":10,\"time\":1e999,\"steps\":1e999}";
    case 3: {
      std::string bytes(random() % 200, '\0');
      for (char& byte : bytes) {
        byte = static_cast<char>(random());
      }
      return bytes;
    }
    default: {
      const double time = random() % 4 == 0 ? number(random) : 1.7e9 + static_cast<double>(random() % 1000);
      return to_json(any_record(random, static_cast<int64_t>(random() % 1000) - 5, time));
    }
  }
}

std::string damaged(Random& random, std::string lines) {
  for (uint64_t i = random() % 30; i > 0; --i) {  // lines between, or within another
    lines.insert(lines.empty() ? 0 : random() % lines.size(), hostile_line(random) + (random() % 2 == 0 ? "\n" : ""));
  }
  for (uint64_t i = random() % 10; i > 0 && !lines.empty(); --i) {
    lines[random() % lines.size()] =
        random() % 2 == 0 ? static_cast<char>(random()) : "0123456789eE-\"{}\n,:"[random() % 19];
  }
  if (random() % 3 == 0) {
    lines.resize(random() % (lines.size() + 1));
  }
  return lines;
}

observe::RunData hostile_run(Random& random, const fs::path& directory) {
  fs::create_directories(directory / "metrics");
  const int ranks = 1 + static_cast<int>(random() % 4);
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path active = directory / "metrics" / fmt::format("{}.jsonl", rank);
    for (uint64_t part = random() % 3; part > 0; --part) {
      const auto first = static_cast<int64_t>(1 + random() % 4), last = first + static_cast<int64_t>(random() % 4);
      std::ofstream(observe::segment_path(active, first, last), std::ios::binary)
          << damaged(random, sound_run(random, rank, ranks));
    }
    const std::string lines = sound_run(random, rank, ranks);
    std::ofstream(active, std::ios::binary) << (random() % 8 == 0 ? lines : damaged(random, lines));
  }
  return observe::read_run(directory);
}

observe::CheckpointFacts hostile_facts(Random& random) {
  observe::CheckpointFacts facts;
  facts.step = static_cast<int64_t>(random() % 100) - 10, facts.parameters = number(random);
  for (uint64_t i = random() % 4; i > 0; --i) {
    facts.files.push_back({text(random), text(random), text(random), std::fabs(number(random)), random() % 2 == 0});
  }
  facts.kept = number(random), facts.kept_bytes = number(random), facts.most_kept = number(random);
  facts.disk_free_bytes = number(random);
  return facts;
}

observe::PreparedStats hostile_stats(Random& random) {
  observe::PreparedStats stats;
  stats.raw_pairs = number(random), stats.train_pairs = number(random);
  stats.copies = std::max(1.0, number(random));
  stats.dropped = {{text(random), number(random)}};
  stats.source.raw_bytes = number(random), stats.target.unknown_percent = number(random);
  return stats;
}

// "nan" or "inf" as a word of its own.
bool says_no_number(const std::string& answer) {
  static const std::regex kNone("(^|[^a-z])-?(nan|inf)([^a-z]|$)", std::regex::icase);
  return std::regex_search(answer, kNone);
}

void check_one(uint64_t seed) {
  Random random(seed);
  const testing::TemporaryDirectory directory(testing::memory_directory());
  observe::RunData run = hostile_run(random, directory.path());
  if (random() % 2 == 0) {
    run.stats = hostile_stats(random);
  }
  observe::RunPlan plan{.max_steps = static_cast<int64_t>(random() % 100000),
                        .max_epochs = random() % 3 == 0 ? 5.0 : 0.0,
                        .schedule = "",
                        .rate_at = {}};
  if (random() % 2 == 0) {
    plan.schedule = "fixed", plan.rate_at = [](int64_t) { return 1e-3; };
  }
  const double now = random() % 2 == 0 ? 0 : 1.7e9 + static_cast<double>(random() % 100000);
  for (const Answer& v : make_report(run, plan, hostile_facts(random), now, random() % 2 == 0 ? 0 : 3.5).answers) {
    ASSERT_FALSE(v.text.empty() || v.verdict.label.empty()) << "seed " << seed << " " << v.key;
    ASSERT_FALSE(says_no_number(v.text)) << "seed " << seed << " " << v.key << ": " << v.text.substr(0, 1000);
    ASSERT_LT(v.text.size(), 40'000U) << "seed " << seed << " " << v.key;
  }
  // The trainer that goes on from there.
  observe::MetricsWriter writer(directory / "metrics/0.jsonl", static_cast<int64_t>(random() % 500) - 1, 4096);
  for (int64_t step = 500; step < 520; ++step) {
    writer.write(any_record(random, step, 1.8e9));
  }
  observe::read_rank(directory / "metrics/0.jsonl");
}

TEST(HostileMetrics, NeverBreakAnAnswer) {
  const bool soak = std::getenv("TANDEM_SOAK") != nullptr;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(soak ? 3600 : 3);
  const uint64_t begin = soak ? std::random_device()() : 1;
  uint64_t seed = begin;
  for (; std::chrono::steady_clock::now() < end && !::testing::Test::HasFatalFailure(); ++seed) {
    check_one(seed);
  }
  RecordProperty("runs", static_cast<int>(seed - begin));
  EXPECT_GT(seed, begin);
}

// Steps that took next to no time: a rate is not made of them.
TEST(HostileMetrics, TimeThatIsNone) {
  const testing::TemporaryDirectory directory(testing::memory_directory());
  fs::create_directories(directory / "metrics");
  std::ofstream file(directory / "metrics/0.jsonl");
  for (int step = 1; step <= 30; ++step) {
    file << R"({"kind":"train","step":)" << step << R"(,"time":1.8e9,"steps":1,"data_seconds":5e-324})"
         << "\n";
  }
  file.close();
  for (const Answer& v : make_report(observe::read_run(directory.path()), {}, {}, 1.8e9, 0).answers) {
    EXPECT_FALSE(says_no_number(v.text)) << v.text;
  }
}

// Steps from 0 on, a change of pace, and nothing that says when the run began.
TEST(HostileMetrics, NoStart) {
  observe::RunData run = testing::MadeRun{}.make(1);
  observe::RankMetrics& m = run.ranks[0];
  m.setups.clear();
  m.train.front().step = 0;
  m.train.front().compute_seconds *= 1000;
  EXPECT_EQ(m.since_start().size(), m.train.size());
  for (const Answer& v : make_report(run, {}, {}, 0, 0).answers) {
    EXPECT_FALSE(v.text.empty()) << v.key;
  }
}

TEST(HostileMetrics, RandomDamageOfAnyCharacter) {
  std::string whole;
  for (int i = 1; i <= 30; ++i) {
    whole += to_json(observe::Record{.kind = "train", .step = i * 100, .time = 2.0 * i}
                         .add("loss", 3)
                         .add("nll", 2)
                         .add("steps_per_second", 10)
                         .add("pairs", 7)
                         .add("target_tokens", 70)
                         .add("compute_seconds", 9)
                         .add("data_seconds", 1)
                         .add("elapsed_seconds", 10.0 * i)) +
             "\n";
    whole += to_json(observe::Record{.kind = "valid", .step = i * 100, .time = 2.0 * i + 1}
                         .add("nll", 2 + 1.0 / i)
                         .add("train_nll", 1.9 + 1.0 / i)
                         .add("bleu", 20)
                         .add("bleu_low", 19)
                         .add("bleu_high", 21.5)) +
             "\n";
  }
  const testing::TemporaryDirectory directory(testing::memory_directory());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::string text = whole.substr(0, random() % whole.size());
    for (size_t i = 0; i < 1 + seed % 50 && !text.empty(); ++i) {
      text[random() % text.size()] =
          seed % 2 == 0 ? static_cast<char>(random()) : "0123456789e-\"{}\n,:"[random() % 18];
    }
    std::ofstream(directory / "0.jsonl", std::ios::binary | std::ios::trunc) << text;
    observe::RunData run;
    run.ranks.push_back(observe::read_rank(directory / "0.jsonl"));
    for (const Answer& v : make_report(run, {.max_steps = 5000, .schedule = "", .rate_at = {}}, {}, 100, 1).answers) {
      EXPECT_FALSE(v.text.empty()) << v.key;
    }
  }
}

TEST(HostileMetrics, NoFileNoLineNoRecord) {
  const testing::TemporaryDirectory directory(testing::memory_directory());
  fs::create_directories(directory / "metrics");
  for (const char* content : {"", "\n\n\n", "{}\n", "{\"kind\":\"train\",\"step\":0,\"time\":0}"}) {
    std::ofstream(directory / "metrics/0.jsonl", std::ios::trunc) << content;
    for (const Answer& v : make_report(observe::read_run(directory.path()), {}, {}, 0, 0).answers) {
      EXPECT_FALSE(v.text.empty()) << v.key;
      EXPECT_FALSE(says_no_number(v.text)) << v.key << ": " << v.text.substr(0, 1000);
    }
  }
}

}  // namespace

}  // namespace tandem::report
