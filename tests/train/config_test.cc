#include "train/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/file.h"
#include "temporary_directory.h"
#include "train/group_run.h"

namespace tandem::train {
namespace {

using testing::message_of;

constexpr const char* kFile = R"(
data = "data/en-de"
seed = 7
[model]
width = 256
preset = "tiny"
norm = "post"
[batch]
tokens = 4096
[schedule]
policy = "poly_decay"
learning_rate = 1e-3
warmup_steps = 100
[stop]
max_steps = 1000
metric = "bleu"
)";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Config, FileThenOverrides) {
  const TrainConfig config = parse_config(kFile, "a.toml",
                                          {"run=runs/1", "batch.tokens=8000", "model.heads=8", "device=cpu",
                                           "optimizer.name=adamw", "optimizer.weight_decay=0.01", "stop.max_epochs=2"});
  EXPECT_EQ(config.data, "data/en-de");
  EXPECT_EQ(config.run, "runs/1");
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.model.encoder_layers, 4);  // from the preset
  EXPECT_EQ(config.model.width, 256);         // overrides it
  EXPECT_EQ(config.model.heads, 8);
  EXPECT_EQ(config.model.norm, model::NormPlace::post);
  EXPECT_EQ(config.batch.tokens, 8000);
  EXPECT_EQ(config.batch.seed, 7u);
  EXPECT_EQ(config.batch.max_length, config.model.max_length);
  EXPECT_EQ(config.schedule.policy, optim::SchedulePolicy::poly_decay);
  EXPECT_EQ(config.optimizer.name, optim::OptimizerName::adamw);
  EXPECT_FLOAT_EQ(config.optimizer.adam.weight_decay, 0.01F);
  EXPECT_EQ(config.stop.max_epochs, 2);  // an integer is a number
  EXPECT_EQ(config.stop.metric, store::Metric::bleu);
}

// docs/config.md has a row "| `key` | `default` | meaning |" for every key.
TEST(Config, ThePageOfSettingsHasEveryKeyAndDefault) {
  std::vector<std::string> rows;
  const std::string page = read_file(std::string(TANDEM_SOURCE_DIR) + "/docs/config.md");
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    if (const size_t middle = line.find("` | `"); line.starts_with("| `") && middle != std::string::npos) {
      const size_t value = middle + 5;
      rows.push_back(line.substr(3, middle - 3) + "=" + line.substr(value, line.find('`', value) - value));
    }
  }
  EXPECT_EQ(to_toml(parse_config("", "docs/config.md", rows)), to_toml(TrainConfig{}));
  const std::string all = to_toml(TrainConfig{});
  const auto keys = std::count(all.begin(), all.end(), '=');
  EXPECT_EQ(std::ssize(rows), keys + 1);  // model.preset is a key, but no member
  EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), rows.size());
}

TEST(Config, ALaterPresetReplacesTheFilesModel) {
  const TrainConfig config = parse_config(kFile, "a.toml", {"model.preset=small", "model.norm=pre"});
  EXPECT_EQ(config.model.width, 256);
  EXPECT_EQ(config.model.feed_forward, 1024);
  EXPECT_EQ(config.model.encoder_layers, 6);
}

TEST(Config, OverridesTakeBareWordsQuotesAndLists) {
  const TrainConfig config =
      parse_config("", "a.toml",
                   {"run=2024", "data=\"a b\"", "init=true", "schedule.policy=piecewise_constant",
                    "schedule.boundaries=[10, 20]", "schedule.decay_rates=[0.5, 0.25]", "schedule.learning_rate=1"});
  EXPECT_EQ(config.run, "2024");
  EXPECT_EQ(config.data, "a b");
  EXPECT_EQ(config.init, "true");
  EXPECT_EQ(config.schedule.boundaries, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(config.schedule.decay_rates, (std::vector<double>{0.5, 0.25}));
}

TEST(Config, EffectiveConfigReadsBackEqual) {
  TrainConfig config =
      parse_config(kFile, "a.toml", {"model.dropout=0.3", "schedule.min_lr=1e-7", "label_smoothing=0"});
  config.run = "a \"strange\\path\"\n\x01";
  config.model.source_vocabulary = 8000;
  config.model.target_vocabulary = 8000;
  config.optimizer.adam.epsilon = 1.1754945e-38F;
  config.optimizer.ema_decay = 0.9999F;
  config.stop.max_minutes = 0.1;
  const std::string toml = to_toml(config);
  const TrainConfig again = parse_config(toml, "effective.toml");
  EXPECT_EQ(to_toml(again), toml);
  EXPECT_EQ(again.run, config.run);
  EXPECT_EQ(again.model.dropout, 0.3F);
  EXPECT_EQ(again.optimizer.adam.epsilon, config.optimizer.adam.epsilon);
  EXPECT_EQ(again.optimizer.ema_decay, 0.9999F);
  EXPECT_EQ(again.stop.max_minutes, 0.1);
  EXPECT_TRUE(compare_for_resume(config, again).allowed.empty());
}

TEST(Config, UnknownKeysGetASuggestion) {
  const std::string message = message_of([] {
    parse_config("sede = 1\n[model]\nwdith = 3\n[shedule]\nwarmup_steps = 4\n[stop]\nmax_step = 1\nzzzzzzzz = 2\n",
                 "a.toml", {"batch.token=5", "learning_rate=1", "model.x.y=1", "model=3"});
  });
  EXPECT_TRUE(contains(message, "a.toml:1: unknown key 'sede'; did you mean 'seed'?")) << message;
  EXPECT_TRUE(contains(message, "a.toml:3: unknown key 'model.wdith'; did you mean 'model.width'?")) << message;
  EXPECT_TRUE(contains(message, "unknown key 'shedule.warmup_steps'; did you mean 'schedule.warmup_steps'?"))
      << message;
  EXPECT_TRUE(contains(message, "a.toml:7: unknown key 'stop.max_step'; did you mean 'stop.max_steps'?")) << message;
  EXPECT_TRUE(contains(message, "a.toml:8: unknown key 'stop.zzzzzzzz'\n")) << message;
  EXPECT_TRUE(contains(message, "'batch.token=5': unknown key 'batch.token'; did you mean 'batch.tokens'?")) << message;
  EXPECT_TRUE(contains(message, "'learning_rate=1'")) << message;
  EXPECT_TRUE(contains(message, "did you mean 'schedule.learning_rate'?")) << message;
  EXPECT_TRUE(contains(message, "'model")) << message;
}

TEST(Config, WrongTypesAreAllListed) {
  const std::string message = message_of([] {
    parse_config(
        "seed = -1\nthreads = 99999999999\ndata = 3\nprecision = \"f16\"\n[model]\nwidth = 1.5\nnorm = 1\n"
        "attention_bias = 1\n[schedule]\nboundaries = [1, 2.5]\nlearning_rate = \"x\"\n[batch]\ntokens=true\n",
        "a.toml", {"model.preset=gigantic", "noequals", "schedule.decay_rates=[1"});
  });
  for (const char* part :
       {"a.toml:1: seed must be a whole number", "a.toml:2: threads", "a.toml:3: data must be a string, not 3",
        "a.toml:4: precision must be one of auto, f32, bf16, not", "a.toml:6: model.width must be a whole number",
        "a.toml:7: model.norm", "a.toml:8: model.attention_bias must be true or false",
        "a.toml:10: schedule.boundaries", "a.toml:11: schedule.learning_rate must be a number",
        "a.toml:13: batch.tokens", "gigantic", "'noequals' is not of the form key=value", "schedule.decay_rates=[1"}) {
    EXPECT_TRUE(contains(message, part)) << part << "\nin\n" << message;
  }
}

TEST(Config, ImpossibleValuesAreAllListed) {
  const std::string message = message_of([] {
    parse_config(
        "label_smoothing = 1.0\ndevice = \"gpu\"\n[model]\nwidth = 100\nheads = 7\nactivation = \"none\"\n"
        "[batch]\ntokens = 0\nmicro_batch = 3\n[optimizer]\nbeta2 = nan\nepsilon = 0\nweight_decay = inf\n"
        "[stop]\nmax_steps = 0\npatience = 3\n[validation]\nevery_steps = 0\n[checkpoint]\nkeep_last = 0\n"
        "[schedule]\nlearning_rate = -1\n[nonfinite]\nlr_factor = 0.0\n",
        "a.toml", {"stop.metric=bleu", "validation.decode=false"});
  });
  for (const char* part :
       {"a.toml:1: label_smoothing must be at least 0 and below 1, not 1", "a.toml:2: device", "a.toml:4: width",
        "activation", "a.toml:8: batch.tokens must be at least 1", "a.toml:9: batch.micro_batch",
        "a.toml:11: optimizer.beta2", "a.toml:12: optimizer.epsilon must be above 0",
        "a.toml:13: optimizer.weight_decay", "would never end", "a.toml:16: stop.patience",
        "a.toml:20: checkpoint.keep_last", "a.toml:22: schedule.learning_rate", "a.toml:24: nonfinite.lr_factor",
        "'stop.metric=bleu': stop.metric"}) {
    EXPECT_TRUE(contains(message, part)) << part << "\nin\n" << message;
  }
}

TEST(Config, LimitsOfAProcessGroup) {
  const TrainConfig config = parse_config(
      kFile, "a.toml", {"dist.heartbeat_seconds=0.25", "dist.silence_seconds=8", "dist.collective_minutes=1"});
  const dist::ProcessGroupOptions options = group_options(config.dist);
  EXPECT_EQ(options.heartbeat, std::chrono::milliseconds(250));
  EXPECT_EQ(options.silence, std::chrono::seconds(8));
  EXPECT_EQ(options.collective_timeout, std::chrono::minutes(1));
  const dist::ProcessGroupOptions usual;
  const dist::ProcessGroupOptions by_default = group_options({});
  EXPECT_EQ(by_default.heartbeat, usual.heartbeat);
  EXPECT_EQ(by_default.silence, usual.silence);
  EXPECT_EQ(by_default.collective_timeout, usual.collective_timeout);
  for (const char* bad : {"dist.heartbeat_seconds=0", "dist.silence_seconds=0", "dist.silence_seconds=1.5",
                          "dist.heartbeat_seconds=2", "dist.silence_seconds=nan", "dist.collective_minutes=0"}) {
    const std::string message = message_of([&] { parse_config(kFile, "a.toml", {bad}); });
    EXPECT_TRUE(contains(message, "dist.")) << bad << ": " << message;
  }
}

TEST(Config, BadFiles) {
  const testing::TemporaryDirectory directory;
  EXPECT_TRUE(contains(message_of([&] { load_config(directory / "none.toml"); }), "none.toml"));
  EXPECT_NE(message_of([&] { load_config(directory.path()); }), "");
  EXPECT_TRUE(contains(message_of([] { parse_config("seed = 1\nx = [1\n\n", "a.toml"); }), "a.toml:"));
  EXPECT_TRUE(contains(message_of([] { parse_config("seed = 1\nseed = 2\n", "a.toml"); }), "a.toml:2: not TOML"));
  EXPECT_NE(message_of([] { parse_config(std::string("\xFF\x00\x01", 3), "a.toml"); }), "");
}

// Each would take one frame of the stack or more for each level.
TEST(Config, DeepTablesAreOneError) {
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) {
      text += part;
    }
    return text;
  };
  const std::string deep = repeated("a.", 150000) + "a";
  for (const std::string& toml :
       {deep + " = 1\n", "[" + deep + "]\nb = 1\n", "[[" + deep + "]]\n", "\"=\"." + deep + " = 1\n"}) {
    EXPECT_NE(message_of([&] { parse_config(toml, "deep.toml"); }).find("deep.toml: a line has more than 64 dots"),
              std::string::npos);
  }
  EXPECT_NE(message_of([&] { parse_config("", "deep.toml", {deep + "=1"}); }).find("64 dots"), std::string::npos);
  // As deep as brackets and keys together can be, a line each.
  const std::string level = "[ {" + repeated("a.", 60) + "a = \n";
  for (const int brackets : {50, 120, 250}) {
    EXPECT_FALSE(message_of([&] {
                   parse_config("x = " + repeated(level, brackets) + "1" + repeated("} ]", brackets), "deep.toml");
                 }).empty());
  }
  EXPECT_NE(message_of([&] { parse_config(repeated("a.", 60) + "a = 1", "deep.toml"); }).find("unknown key 'a.a.a'"),
            std::string::npos);
}

TEST(Config, ResumeRefusesWhatTheStateDependsOn) {
  const TrainConfig saved = parse_config(kFile, "a.toml");
  TrainConfig now = saved;
  now.stop.max_steps = 2000;
  now.model.dropout = 0.2F;
  now.data = "elsewhere";
  ConfigChanges changes = compare_for_resume(saved, now);
  EXPECT_TRUE(changes.refused.empty());
  EXPECT_EQ(changes.allowed, (std::vector<std::string>{"data: \"data/en-de\" -> \"elsewhere\"",
                                                       "model.dropout: 0.1 -> 0.2", "stop.max_steps: 1000 -> 2000"}));
  now.model.width = 512;
  now.seed = 8;
  changes = compare_for_resume(saved, now);
  EXPECT_EQ(changes.refused, (std::vector<std::string>{"seed: 7 -> 8", "model.width: 256 -> 512"}));
}

TEST(Config, ShippedConfigsAreSound) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/configs")) {
    EXPECT_EQ(message_of([&] { load_config(entry.path(), {"data=d", "run=r"}); }), "") << entry.path();
    ++found;
  }
  EXPECT_GE(found, 4);
}

}  // namespace
}  // namespace tandem::train
