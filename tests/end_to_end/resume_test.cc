// Stopping and going on: by limit, by signal, with another number of micro-batches; and what is refused.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

std::string weights(const TemporaryDirectory& directory, const std::string& run) {
  return read_text(directory / (run + "/latest/model.safetensors"));
}

class Resume : public ::testing::Test {
 protected:
  void SetUp() override { make_small_corpus(directory_); }

  void expect_trains(const std::string& name, int steps, const std::vector<std::string>& more = {}) {
    const Result result = run(train_arguments(directory_, name, steps, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }

  TemporaryDirectory directory_;
};

TEST_F(Resume, IsBitEqualToTheRunThatNeverStopped) {
  const std::vector<std::string> more{"optimizer.ema_decay=0.99", "validation.every_steps=15"};
  expect_trains("whole", 60, more);
  expect_trains("parts", 20, more);
  const std::string early = weights(directory_, "parts");
  expect_trains("parts", 33, more);
  expect_trains("parts", 60, more);
  EXPECT_NE(early, weights(directory_, "parts"));
  EXPECT_EQ(weights(directory_, "whole"), weights(directory_, "parts"));
  EXPECT_EQ(read_text(directory_ / "whole/latest/optimizer.safetensors"),
            read_text(directory_ / "parts/latest/optimizer.safetensors"));
  EXPECT_EQ(read_text(directory_ / "whole/latest/ema.safetensors"),
            read_text(directory_ / "parts/latest/ema.safetensors"));
}

TEST_F(Resume, ThreadsDoNotChangeABit) {
  expect_trains("one", 30, {"threads=1"});
  expect_trains("three", 30, {"threads=3"});
  EXPECT_EQ(weights(directory_, "one"), weights(directory_, "three"));
}

TEST_F(Resume, StartOverBeginsAnew) {
  expect_trains("run", 20);
  const std::string first = weights(directory_, "run");
  std::vector<std::string> arguments = train_arguments(directory_, "run", 20, {"--start-over"});
  const Result again = run(arguments);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.err.find("resuming"), std::string::npos) << again.err;
  EXPECT_EQ(first, weights(directory_, "run"));
}

TEST_F(Resume, RefusesOtherModelOrData) {
  expect_trains("run", 20);
  const std::string config = read_text(directory_ / "run/config.toml");
  const Result model = run(train_arguments(directory_, "run", 40, {"model.width=64"}));
  EXPECT_EQ(model.exit_code, 1);
  EXPECT_NE(model.err.find("width"), std::string::npos) << model.err;
  EXPECT_NE(model.err.find("--start-over"), std::string::npos) << model.err;

  const Result prepared = run({"prepare", "--source", directory_.at("dev.en"), "--target", directory_.at("dev.de"),
                               "--tokenizer", directory_.at("data") + "/joint.model", "--out", directory_.at("other")});
  if (prepared.exit_code == 0) {
    std::vector<std::string> arguments = train_arguments(directory_, "run", 40);
    arguments[2] = "data=" + directory_.at("other");
    const Result data = run(arguments);
    EXPECT_EQ(data.exit_code, 1);
    EXPECT_NE(data.err.find("other data"), std::string::npos) << data.err;
  } else {
    ADD_FAILURE() << prepared.err;
  }
  EXPECT_EQ(config, read_text(directory_ / "run/config.toml")) << "a refused run must not change the run directory";
}

TEST_F(Resume, SignalsSaveAndEnd) {
  expect_trains("whole", 800);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const fs::path log = directory_ / ("log" + std::to_string(signal));
    const pid_t process = start(train_arguments(directory_, "stopped", 800), log);
    ASSERT_TRUE(appears(log, "step ")) << read_text(log);
    for (int i = 0; i < 3; ++i) {  // an impatient user
      kill(process, signal);
      usleep(2000);
    }
    EXPECT_EQ(wait_for(process), 128 + signal) << read_text(log);
    EXPECT_TRUE(fs::exists(directory_ / "stopped/latest/manifest.json"));
    EXPECT_TRUE(read_text(directory_ / "stopped/train.log").ends_with(fmt::format("stopped by signal {}\n", signal)));
  }
  expect_trains("stopped", 800);
  EXPECT_EQ(weights(directory_, "whole"), weights(directory_, "stopped"));
}

TEST_F(Resume, Usr1SavesAndGoesOn) {
  const fs::path log = directory_ / "log";
  const pid_t process = start(train_arguments(directory_, "run", 1000000, {"checkpoint.every_steps=0"}), log);
  ASSERT_TRUE(appears(log, "step ")) << read_text(log);
  EXPECT_FALSE(fs::exists(directory_ / "run/latest"));
  kill(process, SIGUSR1);
  for (int i = 0; i < 1000 && !fs::exists(directory_ / "run/latest"); ++i) {
    usleep(10000);
  }
  EXPECT_TRUE(fs::exists(directory_ / "run/latest/manifest.json"));
  int code = 0;
  EXPECT_FALSE(has_ended(process, code));

  const Result second = run(train_arguments(directory_, "run", 10));
  EXPECT_EQ(second.exit_code, 1) << "a second trainer on the same run directory";
  EXPECT_NE(second.err.find(std::to_string(process)), std::string::npos) << second.err;
  kill(process, SIGTERM);
  EXPECT_EQ(wait_for(process), 128 + SIGTERM);
}

TEST_F(Resume, MicroBatchesKeepTheCurve) {
  // The same step in one micro-batch or several: equal but for the order of additions.
  expect_trains("one", 20, {"log.every_steps=1"});
  expect_trains("many", 20, {"log.every_steps=1", "batch.micro_batch=80"});
  const auto one = train_records(directory_ / "one", "loss"), many = train_records(directory_ / "many", "loss");
  ASSERT_EQ(one.size(), 20u);
  ASSERT_EQ(many.size(), 20u);
  for (const auto& [step, loss] : one) {
    EXPECT_NEAR(many.at(step) / loss, 1, 1e-5) << "step " << step;
  }
}

TEST_F(Resume, InitTakesOverTheWeights) {
  expect_trains("first", 30);
  expect_trains("second", 1, {"init=" + directory_.at("first"), "schedule.learning_rate=1e-12"});
  const Result evaluate_first = run({"evaluate", "--model", directory_.at("first"), "--source", directory_.at("dev.en"),
                                     "--target", directory_.at("dev.de"), "--json"});
  const Result evaluate_second = run({"evaluate", "--model", directory_.at("second"), "--source",
                                      directory_.at("dev.en"), "--target", directory_.at("dev.de"), "--json"});
  ASSERT_EQ(evaluate_first.exit_code, 0) << evaluate_first.err;
  const auto nll = [](const std::string& json) { return std::stod(json.substr(json.find("\"nll\":") + 6)); };
  EXPECT_NEAR(nll(evaluate_first.out), nll(evaluate_second.out), 1e-4);
}

TEST_F(Resume, NonFiniteStepsAreSkippedThenRolledBackThenEnd) {
  const Result result = run(train_arguments(directory_, "wild", 400,
                                            {"schedule.learning_rate=1e30", "nonfinite.max_skips=3",
                                             "nonfinite.max_rollbacks=2", "checkpoint.every_steps=1000"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("skipped"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("back to step"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("diverged"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tandem::testing
