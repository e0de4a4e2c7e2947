// tandem average and inspect on checkpoints made here, through the program itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/file.h"
#include "store/checkpoint.h"
#include "temporary_directory.h"
#include "train/config.h"

namespace tandem::store {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

struct Result {
  int exit_code;
  std::string output;  // both streams
};

Result tandem(const std::string& arguments, const fs::path& scratch) {
  const fs::path output = scratch / "output";
  const int status = std::system(fmt::format("{} {} >{} 2>&1", TANDEM_BINARY, arguments, output.string()).c_str());
  return {WEXITSTATUS(status), read_file(output)};
}

ParameterLayout layout() {
  ParameterLayout result;
  result.add_matrix("matrix", 3, 5, Init::zero);
  result.add_vector("vector", 3, Init::zero);
  return result;
}

// Every weight is `value`, every moment 0.5.
fs::path save(const fs::path& run, int64_t step, float value, double bleu, const std::string& tokenizer = "pieces") {
  const ParameterLayout parameters = layout();
  std::vector<float> weights(static_cast<size_t>(parameters.flat_size()), value), moments(weights.size(), 0.5F);
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.metrics = {{"bleu", bleu}};
  checkpoint.state.metrics_step = step;
  checkpoint.config_toml = train::to_toml(train::parse_config("", "defaults"));
  checkpoint.source_tokenizer = tokenizer;
  const View view = host_view(moments.data(), 1, parameters.flat_size());
  return save_checkpoint(run, checkpoint, parameters,
                         {host_view(weights.data(), 1, parameters.flat_size()), {{"m", view}, {"v", view}}, {}});
}

float first_weight(const fs::path& directory) {
  const ParameterLayout parameters = layout();
  std::vector<float> weights(static_cast<size_t>(parameters.flat_size()));
  load_inference_weights(resolve_model(directory), parameters, host_view(weights.data(), 1, parameters.flat_size()));
  EXPECT_EQ(weights[0], weights[static_cast<size_t>(parameters[1].offset) + 2]);
  return weights[0];
}

TEST(Average, MeanOfTheLastOfTheBestAndOfGivenCheckpoints) {
  const TemporaryDirectory base(testing::memory_directory());
  const fs::path run = base / "run";
  const fs::path first = save(run, 10, 1, 30);
  save(run, 20, 2, 10);
  const fs::path third = save(run, 30, 4.5F, 20);
  const auto average = [&](const std::string& arguments, const std::string& out) {
    const Result result = tandem(fmt::format("average {} --out {}", arguments, (base / out).string()), base.path());
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output.find("given 2 times") != std::string::npos, out == "twice") << result.output;
    return first_weight(base / out);
  };
  EXPECT_EQ(average(run.string() + " --last 3", "last"), 2.5F);
  EXPECT_EQ(average(run.string() + " --best 2 --metric bleu", "best"), 2.75F);
  EXPECT_EQ(average(first.string() + " " + third.string() + " " + third.string(), "twice"), 10.0F / 3.0F);
  EXPECT_EQ(average((base / "last").string() + " " + first.string(), "again"), 1.75F);
  EXPECT_EQ(load_checkpoint(base / "last").state.step, 30);
}

TEST(Average, RefusesWhatCannotBeAveraged) {
  const TemporaryDirectory base(testing::memory_directory());
  const fs::path first = save(base / "run", 10, 1, 30), other = save(base / "other", 10, 1, 30, "other pieces");
  const std::string out = " --out " + (base / "out").string();
  const auto refuses = [&](const std::string& arguments, const std::string& part) {
    const Result result = tandem("average " + arguments, base.path());
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
    EXPECT_FALSE(fs::exists(base / "out"));
  };
  refuses((base / "run").string() + " --last 2" + out, "has 1 checkpoints, not 2");
  refuses(first.string() + " " + other.string() + out, "another tokenizer");
  refuses((base / "run").string() + " --last 1 --best 1" + out, "not both");
  refuses((base / "none").string() + out, "none");
  refuses(first.string() + " --out " + other.string(), "exists already");
  fs::resize_file(other / "model.safetensors", 100);
  refuses(other.string() + out, "model.safetensors");
}

TEST(Inspect, NamesWhatIsDamaged) {
  const TemporaryDirectory base(testing::memory_directory());
  const fs::path first = save(base / "run", 10, 1, 30);
  save(base / "run", 20, 1, 30);
  Result result = tandem("inspect --tensors " + first.string(), base.path());
  EXPECT_NE(result.output.find("2 tensors, 18 F32 numbers"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("F32 [3, 5]"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("source.model"), std::string::npos) << "these are no pieces";
  EXPECT_EQ(result.exit_code, 1);
  fs::resize_file(first / "optimizer.safetensors", 100);
  result = tandem("inspect " + (base / "run").string(), base.path());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("optimizer.safetensors is damaged: it has 100 bytes"), std::string::npos)
      << result.output;
}

}  // namespace
}  // namespace tandem::store
