// tandem demo: prepares, trains and translates made-up data, with the functions of the other commands.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "backend/cuda_device.h"
#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/stopwatch.h"
#include "data/demo_corpus.h"
#include "data/prepare.h"
#include "data/prepared.h"
#include "decode/line_translator.h"
#include "launch/launch.h"
#include "model_options.h"
#include "text/bleu.h"
#include "train/trainer.h"

namespace tandem::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kTrainPairs = 100000;
constexpr int64_t kValidPairs = 500;
constexpr int64_t kTestPairs = 500;
constexpr uint64_t kSeed = 1;
constexpr int64_t kVocabulary = 400;
constexpr int kSamples = 5;
constexpr int kMostWorkers = 64;

// Less than two minutes of training on two cores.
constexpr char kConfig[] = R"(# The demo's training: a small model, less than two minutes on two CPU cores.
label_smoothing = 0.0

[model]
preset = "tiny"
encoder_layers = 2
decoder_layers = 2
dropout = 0.0
attention_dropout = 0.0
activation_dropout = 0.0
max_length = 64

[batch]
tokens = 2500

[optimizer]
max_gradient_norm = 1.0

[schedule]
policy = "cosine_decay"
learning_rate = 0.002
warmup_steps = 200

[stop]
max_steps = 1000

[validation]
every_steps = 250
max_sentences = 100
train_sample = 100
samples = 2

[checkpoint]
every_steps = 500
keep_last = 1

[log]
every_steps = 100
)";

data::TextPairs take(std::vector<data::DemoPair>& pairs, int64_t count) {
  data::TextPairs text;
  for (int64_t i = 0; i < count; ++i) {
    text.source.push_back(std::move(pairs.back().source));
    text.target.push_back(std::move(pairs.back().target));
    pairs.pop_back();
  }
  return text;
}

void write_lines(const fs::path& path, const std::vector<std::string>& lines) {
  std::string content;
  for (const std::string& line : lines) {
    content += line + "\n";
  }
  write_file(path, content);
}

void write_text(const fs::path& directory, const std::string& name, const data::TextPairs& text) {
  write_lines(directory / (name + ".en"), text.source);
  write_lines(directory / (name + ".de"), text.target);
}

// Creates the directory, or removes a former demo's files from it; leaves all other files alone.
void claim(const fs::path& out) {
  const fs::path mark = out / ".tandem-demo";
  require(!fs::exists(out) || fs::exists(mark) || (fs::is_directory(out) && fs::is_empty(out)),
          "{} exists and was not made by `tandem demo`: give another directory with --out", out.string());
  make_directory(out);
  write_file(mark, "");
  for (const char* name : {"text", "data", "run", "demo.toml", "test.out.de"}) {
    remove_tree(out / name);
  }
  make_directory(out / "text");
}

void prepare_data(const fs::path& out, int threads) {
  data::PrepareConfig config;
  const auto text = [&out](const char* name) { return (out / "text" / name).string(); };
  config.source = {text("train.en")};
  config.target = {text("train.de")};
  config.valid_source = text("valid.en");
  config.valid_target = text("valid.de");
  config.test_source = text("test.en");
  config.test_target = text("test.de");
  config.out = out / "data";
  config.cleaning.max_ratio = 0;  // German numbers are one word
  config.training.vocab_size = kVocabulary;
  config.seed = kSeed;
  config.threads = threads;
  data::prepare(config);
}

void train(const fs::path& out, int threads, int workers) {
  const fs::path config = out / "demo.toml";
  write_file(config, kConfig);
  std::vector<std::string> settings{"data=" + (out / "data").string(), "run=" + (out / "run").string(),
                                    fmt::format("threads={}", threads == 0 ? 0 : std::max(1, threads / workers))};
  if (backend::gpu_count() > 0 && workers > backend::gpu_count()) {
    settings.emplace_back("dist.share_device=true");
  }
  if (workers > 1) {
    settings.insert(settings.begin(), {"train", config.string()});
    return launch::launch_here(workers, settings);
  }
  const train::TrainOutcome outcome = train::train_model(train::load_config(config, settings), false);
  if (outcome.signal != 0) {
    throw Interrupted(outcome.signal, fmt::format("{}; `tandem demo` restarts it", outcome.reason));
  }
}

std::vector<std::string> translate(const fs::path& out, int threads, const data::TextPairs& test) {
  DecodingOptions options;
  options.model = (out / "run").string();
  options.loading.threads = threads;
  Translator translator = open_translator(options);
  std::vector<std::string> translations =
      decode::best_of(translator.translate(test.source, translate_options(options, 1)));
  write_lines(out / "test.out.de", translations);
  return translations;
}

void print_result(const fs::path& out, const data::TextPairs& test, const std::vector<std::string>& translations) {
  size_t exact = 0;
  for (size_t i = 0; i < translations.size(); ++i) {
    exact += translations[i] == test.target[i];
  }
  fmt::print("\nsome of the {} test items, none of which was in the training data:\n", translations.size());
  for (size_t i = 0; i < kSamples; ++i) {
    fmt::print("  {}\n    -> {}{}\n", test.source[i], translations[i],
               translations[i] == test.target[i] ? "" : "   (should be: " + test.target[i] + ")");
  }
  fmt::print("\nexactly right: {} of {} ({:.1f} %)\n{}\n", exact, translations.size(),
             100.0 * static_cast<double>(exact) / static_cast<double>(translations.size()),
             text::corpus_score(translations, {test.target}, text::BleuOptions{})
                 .text(2, text::signature(text::BleuOptions{}, 1)));
  const std::string run = (out / "run").string();
  fmt::print(
      "\nthe run is in {0}; try next:\n"
      "  echo \"{1}\" | tandem translate --model {0} --n-best 3\n"
      "  tandem evaluate --model {0} --source {2}.en --target {2}.de\n"
      "  tandem inspect {0}\n"
      "the report of the run, for a browser: {0}/report.html\n",
      run, test.source[0], (out / "text" / "test").string());
}

void run_demo(const fs::path& out, int threads, int workers) {
  require(workers >= 1 && workers <= kMostWorkers, "--workers is {}: give 1 to {}", workers, kMostWorkers);
  Stopwatch watch;
  claim(out);
  log::info("demo 1/4: making up {} pairs of English and German numbers, dates, prices and times", kTrainPairs);
  std::vector<data::DemoPair> pairs = data::demo_pairs(kTrainPairs + kValidPairs + kTestPairs, kSeed);
  const data::TextPairs test = take(pairs, kTestPairs);
  write_text(out / "text", "test", test);
  write_text(out / "text", "valid", take(pairs, kValidPairs));
  write_text(out / "text", "train", take(pairs, kTrainPairs));
  const double made = watch.lap();
  log::info("demo 2/4: tandem prepare");
  prepare_data(out, threads);
  const double prepared = watch.lap();
  log::info("demo 3/4: {}",
            workers == 1 ? "tandem train" : fmt::format("tandem launch --hosts localhost:{} -- train", workers));
  train(out, threads, workers);
  const double trained = watch.lap();
  log::info("demo 4/4: tandem translate, tandem score");
  const std::vector<std::string> translations = translate(out, threads, test);
  const double translated = watch.lap();
  print_result(out, test, translations);
  fmt::print("\ntime: {:.0f} s making text, {:.0f} s prepare, {:.0f} s train, {:.1f} s translate\n", made, prepared,
             trained, translated);
}

}  // namespace

void add_demo(Program& program) {
  struct Options {
    std::string out = "tandem-demo";
    int threads = 0;
    int workers = 1;
  };
  const auto options = std::make_shared<Options>();  // shared with the action, which runs after this function
  program.add("demo", "Makes up a corpus, trains on it, translates, reports: minutes on two cores, no data needed.")
      .option("-o,--out", options->out, "directory to write; a former demo there is replaced")
      .option("--threads", options->threads, "number of threads; 0 = all cores that this process may use")
      .option("--workers", options->workers,
              "workers that train together as if on that many machines; they share the cores evenly")
      .example("tandem demo --out /tmp/demo")
      .run([options] { run_demo(options->out, options->threads, options->workers); });
}

}  // namespace tandem::cli
