// A preflight and then the run that it speaks of, on hosts with shaped links: does the step take what was predicted?
#include "dist/hosts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/philox.h"

namespace tandem::testing {
namespace {

constexpr double kClose = 0.15;  // of the measured step
constexpr int kAttempts = 3;
constexpr double kFree = 0.8;  // share of the cores that a time needs to mean something

bool soak() { return std::getenv("TANDEM_SOAK") != nullptr; }

std::string word(PhiloxStream& random) {
  std::string text;
  for (size_t i = 2 + random.below(6); i > 0; --i) {
    text += static_cast<char>('a' + random.below(26));
  }
  return text;
}

void write_text(const std::filesystem::path& source, const std::filesystem::path& target) {
  PhiloxStream random(7, 1);
  std::vector<std::string> words(2000);
  std::generate(words.begin(), words.end(), [&random] { return word(random); });
  std::ofstream from(source), to(target);
  for (int line = 0; line < 4000; ++line) {
    for (size_t i = 3 + random.below(25); i > 0; --i) {
      const std::string& one = words[random.below(2000)];
      from << one << ' ';
      to << std::string(one.rbegin(), one.rend()) << ' ';
    }
    from << '\n';
    to << '\n';
  }
}

// Share of two cores that this process gets while it wants both.
double core_share() {
  static constexpr double kSeconds = 0.5;
  const auto spin = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSeconds);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const std::clock_t before = std::clock();
  std::thread other(spin);
  spin();
  other.join();
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / (2 * kSeconds);
}

// Data and config, made once.
class Work {
 public:
  Work() {
    write_text(directory_ / "source", directory_ / "target");
    const CommandResult made =
        run_command(fmt::format("cd {} && {} prepare --source source --target target --vocab-size 3000 --out data",
                                directory_.path().string(), TANDEM_BINARY));
    EXPECT_EQ(made.code, 0) << made.output;
    std::ofstream(directory_ / "config.toml") << "data = \"data\"\nthreads = 1\nprecision = \"f32\"\n"
                                                 "[model]\npreset = \"tiny\"\n[batch]\ntokens = 1000\n"
                                                 "[schedule]\npolicy = \"fixed_lr\"\nlearning_rate = 1e-4\n"
                                                 "[log]\nevery_steps = 1\nprobe_seconds = 0\n"
                                                 "[validation]\nevery_steps = 0\n[checkpoint]\nevery_steps = 0\n";
  }
  std::string in(const std::string& command) const {
    return fmt::format("sh -c 'cd {} && {} {}'", directory_.path().string(), TANDEM_BINARY, command);
  }
  std::filesystem::path operator/(const std::string& name) const { return directory_ / name; }

 private:
  const TemporaryDirectory directory_;
};

struct Measured {
  double step = 0;           // seconds, median
  double communication = 0;  // of it, exposed
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? NAN : values[values.size() / 2];
}

Measured read_metrics(const std::filesystem::path& file) {
  std::vector<double> steps, communication;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record.value("kind", "") == "train" && record.value("step", 0) > 2) {
      steps.push_back(record.at("step_seconds"));
      communication.push_back(record.at("communication_seconds"));
    }
  }
  return {median(steps), median(communication)};
}

struct Case {
  int hosts;
  const char* rate;  // of every port; empty: not shaped
  int steps;         // of the run
  int tokens;        // of a step
};

// Prediction over measurement - 1; the rest is checked on the way.
double off_by(const Case& test, const Work& work, int attempt) {
  const Hosts hosts(test.hosts, test.rate);
  std::string names;
  for (int i = 0; i < test.hosts; ++i) {
    names += (i == 0 ? "" : ",") + Hosts::name(i);
  }
  const std::string run = fmt::format("run-{}{}-{}", test.hosts, test.rate, attempt);
  const std::string where = fmt::format("--hosts {} --agent {}", names, hosts.agent());
  const CommandResult preflight =
      run_command(hosts.in_desk(work.in(fmt::format("preflight {} --config config.toml --json run={} batch.tokens={}",
                                                    where, run, test.tokens))) +
                  " 2>/dev/null");
  EXPECT_EQ(preflight.code, 0) << preflight.output;
  const auto said = nlohmann::json::parse(preflight.output, nullptr, false);
  EXPECT_TRUE(said.is_object()) << preflight.output;
  if (!said.is_object()) {
    return NAN;
  }
  EXPECT_LT(said.at("measured_seconds").get<double>(), 60);
  EXPECT_EQ(said.at("links").size(), static_cast<size_t>(test.hosts * (test.hosts - 1) / 2));

  const CommandResult trained = run_command(
      hosts.in_desk(work.in(fmt::format("launch {} -- train config.toml run={} stop.max_steps={} batch.tokens={}",
                                        where, run, test.steps, test.tokens))));
  EXPECT_EQ(trained.code, 0) << trained.output;
  const Measured measured = read_metrics(work / (run + "/metrics/0.jsonl"));
  const double predicted = said.at("step_seconds"), exposed = said.at("exposed_seconds");
  const double share = measured.communication / measured.step;
  std::cout << fmt::format(
      "{} hosts, {}: predicted {:.0f} ms ({:.0f} ms exposed, {}), measured {:.0f} ms ({:.0f} ms exposed): {:+.1f} %\n",
      test.hosts, *test.rate == 0 ? "unshaped" : test.rate, predicted * 1e3, exposed * 1e3,
      said.at("bottleneck").get<std::string>(), measured.step * 1e3, measured.communication * 1e3,
      100 * (predicted / measured.step - 1));
  const double off = predicted / measured.step - 1;
  if (!(std::fabs(off) <= kClose)) {
    return off;
  }
  if (share > 0.6 || share < 0.4) {  // otherwise either may be named
    EXPECT_EQ(said.at("bottleneck") == "network", share > 0.5) << said.at("sentence");
  }
  if (std::string(test.rate) == "100mbit") {
    for (const auto& link : said.at("links")) {
      EXPECT_NEAR(link.at("bytes_per_second").get<double>(), 11.9e6, 1e6);
      EXPECT_NEAR(link.at("back_bytes_per_second").get<double>(), 11.9e6, 1e6);
      EXPECT_NEAR(link.at("clock_offset_seconds").get<double>(), 0,
                  link.at("clock_error_seconds").get<double>() + 1e-3);
    }
  }
  return off;
}

void expect_close(const std::vector<Case>& cases) {
  const Work work;
  for (const Case& test : cases) {
    double off = NAN;
    for (int attempt = 0; attempt < kAttempts && !(std::fabs(off) <= kClose); ++attempt) {
      const double share = core_share();
      if (share < kFree) {
        GTEST_SKIP() << "other programs use the cores, of which this one gets " << 100 * share << " %";
      }
      off = off_by(test, work, attempt);
    }
    if (const double share = core_share(); !(std::fabs(off) <= kClose) && share < kFree) {
      GTEST_SKIP() << "other programs use the cores, of which this one gets " << 100 * share << " %";
    }
    EXPECT_LE(std::fabs(off), kClose) << test.hosts << " hosts, " << test.rate;
  }
}

TEST(Preflight, PredictsTheStepOnASlowLink) {
  if (const std::string why = Hosts::unavailable(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  expect_close({{2, "100mbit", 15, 250}});
}

TEST(Preflight, PredictsTheStepOnAllLinks) {
  if (!soak()) {
    GTEST_SKIP() << "minutes: set TANDEM_SOAK=1";
  }
  if (const std::string why = Hosts::unavailable(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  expect_close({{2, "", 40, 1000},
                {2, "1gbit", 40, 1000},
                {2, "100mbit", 30, 1000},
                {4, "", 40, 1000},
                {4, "1gbit", 40, 1000},
                {4, "100mbit", 20, 1000}});
}

}  // namespace
}  // namespace tandem::testing
