// A run directory, a prepared corpus and an averaged model, written by the program of 2026-11-18 (commit f6d0485), are
// still read: they resume, translate and report the same. The archive also holds what that program answered.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class OldFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string archive = TANDEM_SOURCE_DIR "/tests/end_to_end/old_files/2026-11-18.tar.xz";
    const std::string unpack = fmt::format("cd '{}' && cmake -E tar xf '{}'", directory_.path().string(), archive);
    ASSERT_EQ(std::system(unpack.c_str()), 0) << unpack;
  }

  std::string text(const std::string& name) const { return read_text(directory_ / name); }

  Result trained(int steps) const {
    return run({"train", directory_.at("config.toml"), "data=" + directory_.at("data"), "run=" + directory_.at("run"),
                fmt::format("stop.max_steps={}", steps)});
  }

  TemporaryDirectory directory_;
};

TEST_F(OldFiles, Translate) {
  for (const std::string model : {"run", "averaged"}) {
    const Result result = run({"translate", "--model", directory_.at(model)}, text("dev.en"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, text(model + ".txt")) << model;
  }
}

TEST_F(OldFiles, AreSound) {
  for (const std::string name : {"run", "averaged", "data"}) {
    const Result result = run({"inspect", directory_.at(name)});
    EXPECT_EQ(result.exit_code, 0) << name << ": " << result.err;
  }
}

// Of the same floating-point type and algorithm on any processor, but not of the same bits: matrix products differ.
TEST_F(OldFiles, Resume) {
  const json wanted = json::parse(text("resumed_validation.jsonl"));
  const Result result = trained(1400);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("1,200"), std::string::npos) << "it should go on from step 1,200: " << result.err;

  const json state = json::parse(text("run/latest/state.json"));
  EXPECT_EQ(state["step"], 1400);
  EXPECT_EQ(state["updates"], 1400);
  const double nll = state["metrics"]["nll"], expected = wanted["nll"];
  EXPECT_TRUE(std::abs(nll - expected) < 0.02 * expected) << nll << " instead of " << expected;
}

TEST_F(OldFiles, ReportTheSame) {
  const json wanted = json::parse(text("report.json"));
  const Result result = run({"report", directory_.at("run"), "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out)["runs"][0];
  for (const std::string key : {"charts", "validations", "samples", "seconds", "steps"}) {
    EXPECT_EQ(report[key], wanted[key]) << key;
  }
  json labels;
  for (const json& verdict : report["verdicts"]) {
    labels[verdict["key"].get<std::string>()] = verdict["label"];
  }
  EXPECT_EQ(labels, wanted["labels"]);
}

}  // namespace
}  // namespace tandem::testing
