// Whole runs on the GPU: the same bits each time and after a stop, and the CPU's loss curve.
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/log.h"
#include "core/philox.h"
#include "cuda/device.h"
#include "data/demo_corpus.h"
#include "data/prepare.h"
#include "decode/line_translator.h"
#include "store/model_loader.h"
#include "temporary_directory.h"
#include "train/trainer.h"

namespace tandem::backend {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines) {
  std::ofstream file(path);
  for (const std::string& line : lines) {
    file << line << '\n';
  }
}

constexpr const char* kConfig = R"(
[model]
preset = "tiny"
max_length = 64
[batch]
tokens = 2048
[schedule]
policy = "fixed_lr"
learning_rate = 0.001
[validation]
every_steps = 0
train_sample = 50
beam = 2
[checkpoint]
every_minutes = 0
[log]
every_steps = 1
)";

class CudaTraining : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    std::vector<std::string> source, target, dev_source, dev_target;
    for (const data::DemoPair& pair : data::demo_pairs(6000, 3)) {
      const bool dev = source.size() >= 5900;
      (dev ? dev_source : source).push_back(pair.source);
      (dev ? dev_target : target).push_back(pair.target);
    }
    write_lines(directory_ / "train.en", source);
    write_lines(directory_ / "train.de", target);
    write_lines(directory_ / "dev.en", dev_source);
    write_lines(directory_ / "dev.de", dev_target);
    lines_ = dev_source;
    data::PrepareConfig config;
    config.source = {(directory_ / "train.en").string()};
    config.target = {(directory_ / "train.de").string()};
    config.valid_source = (directory_ / "dev.en").string();
    config.valid_target = (directory_ / "dev.de").string();
    config.out = directory_ / "data";
    config.training.vocab_size = 300;
    data::prepare(config);
  }

  void train(const std::string& run, int64_t steps, std::vector<std::string> more, double check_share = 0) {
    more.push_back("data=" + (directory_ / "data").string());
    more.push_back("run=" + (directory_ / run).string());
    more.push_back(fmt::format("stop.max_steps={}", steps));
    train::train_model(train::parse_config(kConfig, "the test's config", more), false, check_share);
  }

  std::string weights(const std::string& run) const {
    return read_text(directory_ / (run + "/latest/model.safetensors"));
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    std::istringstream lines(read_text(directory_ / (run + "/metrics/0.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("loss") && record.value("kind", "") == "train") {
        values.push_back(record["loss"].get<double>());
      }
    }
    return values;
  }

  testing::TemporaryDirectory directory_;
  std::vector<std::string> lines_;
};

TEST_F(CudaTraining, SameBitsTwiceAndAfterAStop) {
  const std::vector<std::string> options{"device=cuda", "optimizer.ema_decay=0.99", "validation.every_steps=25"};
  train("one", 60, options);
  train("two", 60, options);
  train("parts", 20, options);
  train("parts", 33, options);
  train("parts", 60, options);
  EXPECT_FALSE(weights("one").empty());
  EXPECT_EQ(weights("one"), weights("two"));
  EXPECT_EQ(weights("one"), weights("parts"));
  EXPECT_EQ(read_text(directory_ / "one/latest/ema.safetensors"),
            read_text(directory_ / "parts/latest/ema.safetensors"));
}

// Checked steps run op by op and are computed on the CPU too; the others are replayed. The bits are the same.
TEST_F(CudaTraining, CheckedStepsChangeNothing) {
  struct Case {
    std::string name;
    int64_t steps;
    double share;
    std::vector<std::string> options;
  };
  const Case cases[] = {
      {"tiny", 12, 0.5, {}},
      {"rounds", 3, 1, {"batch.micro_batch=700"}},
      {"sentences", 3, 1, {"batch.sentences=64"}},
      {"few", 4, 1, {"batch.sentences=3", "model.activation=swish"}},  // short sums of rounded numbers
      {"post", 3, 1, {"model.norm=post", "model.activation=gelu", "model.attention_bias=true"}},
      // As wide, and with as many rows, as the kernels that join a product and a norm want.
      {"wide", 2, 1, {"model.width=512", "model.heads=8", "model.encoder_layers=1", "batch.tokens=8400"}},
  };
  for (const auto& [name, steps, share, options] : cases) {
    if (emulated() && name == "wide") {
      std::cout << "wide steps are left out: an emulated GPU takes an hour for one\n";
      continue;
    }
    std::vector<std::string> on_gpu = options;
    on_gpu.emplace_back("device=cuda");
    train(name + "-plain", steps, on_gpu);
    train(name + "-checked", steps, on_gpu, share);
    EXPECT_FALSE(weights(name + "-plain").empty()) << name;
    EXPECT_EQ(weights(name + "-plain"), weights(name + "-checked")) << name;
    EXPECT_NE(read_text(directory_ / (name + "-checked/train.log")).find("computed on the CPU as well"),
              std::string::npos)
        << name;
  }
}

// Settings of a small model, any of those that a user can choose.
std::vector<std::string> random_model(PhiloxStream& random) {
  const auto pick = [&](std::initializer_list<const char*> values) {
    return std::string(values.begin()[random.below(values.size())]);
  };
  const int64_t columns = std::stol(pick({"8", "16", "24", "32", "40", "56", "64", "72", "96", "128"}));
  const int64_t heads =
      1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(std::min<int64_t>(8, 512 / columns))));
  return {fmt::format("model.width={}", heads * columns),
          fmt::format("model.heads={}", heads),
          "model.feed_forward=" + pick({"8", "64", "72", "128", "192", "320", "504", "512"}),
          "model.encoder_layers=" + pick({"1", "2"}),
          "model.decoder_layers=" + pick({"1", "2"}),
          "model.norm=" + pick({"pre", "post"}),
          "model.activation=" + pick({"relu", "relu", "gelu", "swish"}),
          "model.tie=" + pick({"all", "output", "none"}),
          "model.attention_bias=" + pick({"true", "false"}),
          "model.dropout=" + pick({"0", "0.1", "0.5"}),
          "model.attention_dropout=" + pick({"0", "0.1", "0.25"}),
          "model.activation_dropout=" + pick({"0", "0.1", "0.5"}),
          "label_smoothing=" + pick({"0", "0.1", "0.3"}),
          "optimizer.ema_decay=" + pick({"0", "0.9"}),
          "optimizer.max_gradient_norm=" + pick({"0", "0.5"}),
          "optimizer.weight_decay=" + pick({"0", "0.01"}),
          pick({"batch.sentences=1", "batch.sentences=17", "batch.micro_batch=80", "batch.micro_batch=\"fit\""}),
          "batch.tokens=320"};
}

// Whatever the model: op by op as the CPU, and the same bits recorded, replayed and resumed.
TEST_F(CudaTraining, RandomModelsComputeAsTheCpu) {
  PhiloxStream random(7, 0);
  const int models = emulated() ? 8 : 40;
  for (int i = 0; i < models; ++i) {
    const std::vector<std::string> model = random_model(random);
    SCOPED_TRACE(fmt::format("{}", fmt::join(model, " ")));
    std::vector<std::string> options = model;
    options.insert(options.end(), {"device=cuda", "validation.decode=false"});
    const std::string checked = fmt::format("checked-{}", i), parts = fmt::format("parts-{}", i);
    ASSERT_NO_THROW(train(checked, 3, options, 1));
    ASSERT_NO_THROW(train(parts, 2, options));
    ASSERT_NO_THROW(train(parts, 3, options));
    EXPECT_FALSE(weights(checked).empty());
    EXPECT_EQ(weights(checked), weights(parts));
  }
}

TEST_F(CudaTraining, CurveIsThatOfTheCpu) {
  train("cpu", 200, {"device=cpu", "precision=f32"});
  train("gpu", 200, {"device=cuda"});
  train("rounds", 200, {"device=cuda", "batch.micro_batch=700"});
  const std::vector<double> cpu = losses("cpu"), gpu = losses("gpu"), rounds = losses("rounds");
  ASSERT_EQ(cpu.size(), 200U);
  ASSERT_EQ(gpu.size(), 200U);
  ASSERT_EQ(rounds.size(), 200U);
  EXPECT_LT(cpu.back(), 0.7 * cpu.front());
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_TRUE(std::abs(gpu[i] / cpu[i] - 1) <= 0.01) << "step " << i + 1 << ": " << gpu[i] << " and " << cpu[i];
    EXPECT_TRUE(std::abs(rounds[i] / cpu[i] - 1) <= 0.01) << "step " << i + 1 << ": " << rounds[i] << " and " << cpu[i];
  }
}

TEST_F(CudaTraining, SentenceBudgetAndOtherModels) {
  train("sentences", 30, {"device=cuda", "batch.sentences=64"});
  train("post", 30, {"device=cuda", "model.norm=post", "model.activation=gelu", "model.attention_bias=true"});
  train("swish", 30, {"device=cuda", "model.activation=swish", "model.tie=none"});
  for (const char* run : {"sentences", "post", "swish"}) {
    const std::vector<double> values = losses(run);
    ASSERT_EQ(values.size(), 30U);
    EXPECT_TRUE(values.back() < values.front()) << run;
  }
}

TEST_F(CudaTraining, TranslatesAsTheCpuDoes) {
  train("run", 300, {"device=cuda"});
  const auto translations = [&](Backend& backend, DType compute) {
    store::InferenceModel model(backend, directory_ / "run", compute);
    decode::BatchDecoder decoder(backend, model.model(), model.weights());
    decode::LineTranslator translator(decoder, model.subwords(Side::source), model.subwords(Side::target), 0);
    return translator.translate_best(lines_, {});
  };
  const auto on_gpu = translations(*gpu(), DType::bf16), on_cpu = translations(cpu(), DType::f32);
  ASSERT_EQ(on_gpu.size(), on_cpu.size());
  size_t same = 0;
  for (size_t i = 0; i < on_gpu.size(); ++i) {
    same += on_gpu[i] == on_cpu[i] ? 1 : 0;
  }
  EXPECT_GE(same * 100, on_cpu.size() * 90) << same << " of " << on_cpu.size() << " are the same";
}

}  // namespace
}  // namespace tandem::backend
