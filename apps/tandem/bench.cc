// tandem bench: measures the training step alone, against the hardware's limits and against a PyTorch program.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/philox.h"
#include "data/corpus.h"
#include "data/lines.h"
#include "launch/launch.h"
#include "model_options.h"
#include "train/step_bench.h"

namespace tandem::cli {

namespace {

// An option that stands for settings of the config.
struct Shorthand {
  const char* name;
  const char* help;
  std::vector<const char*> keys;
  std::string value = {};  // empty: not given
};

struct Options {
  std::string what = "step";
  std::vector<std::string> settings;  // a config's path, if there is one, then key=value
  std::vector<Shorthand> shorthands = {
      {"--data", "a directory made by `tandem prepare`, for its sentences: the setting data", {"data"}},
      {"--model", "tiny, small, base or big: model.preset", {"model.preset"}},
      {"--tokens", "tokens of a step, for each side: batch.tokens", {"batch.tokens"}},
      {"--micro-batch", "tokens of each side in a micro-batch: batch.micro_batch", {"batch.micro_batch"}},
      {"--dropout",
       "all three dropout rates",
       {"model.dropout", "model.attention_dropout", "model.activation_dropout"}},
      {"--device", "auto, cpu, cuda or cuda:N", {"device"}},
      {"--precision", "auto, f32 or bf16", {"precision"}},
      {"--threads", "CPU threads; 0 = all cores that this process may use", {"threads"}}};
  std::string lengths, write_lengths, algorithms, peer;
  std::string python = "python3";
  std::string variants = "packed";
  int64_t vocabulary = 32768;
  train::StepBenchOptions bench;
};

// Reads the settings as `tandem train` does: the config file's, then the shorthands, then key=value.
train::TrainConfig config_of(const Options& options) {
  const bool file = !options.settings.empty() && options.settings[0].find('=') == std::string::npos;
  std::vector<std::string> overrides;
  for (const Shorthand& shorthand : options.shorthands) {
    for (const char* key : shorthand.keys) {
      if (!shorthand.value.empty()) {
        overrides.push_back(fmt::format("{}={}", key, shorthand.value));
      }
    }
  }
  if (!options.lengths.empty()) {
    overrides.push_back(fmt::format("model.source_vocabulary={}", options.vocabulary));
    overrides.push_back(fmt::format("model.target_vocabulary={}", options.vocabulary));
  }
  overrides.insert(overrides.end(), options.settings.begin() + (file ? 1 : 0), options.settings.end());
  return train::parse_config(file ? read_file(options.settings[0], 1 << 20) : "", file ? options.settings[0] : "config",
                             overrides);
}

void require_sound(const Options& options, const train::TrainConfig& config) {
  require(config.data.empty() != options.lengths.empty(),
          "give either data=DIR (made by tandem prepare) or --lengths FILE (\"source target\" a line)");
  require(options.bench.steps >= 1, "--steps is {}: give 1 or more", options.bench.steps);
  require(options.bench.ranks >= 1, "--workers is {}: give 1 or more", options.bench.ranks);
  require(options.vocabulary >= 8 && options.vocabulary <= 1 << 24, "--vocabulary is {}: give 8 to {}",
          options.vocabulary, 1 << 24);
  require(options.peer.empty() || !options.write_lengths.empty(),
          "the peer reads the lengths from a file: give --write-lengths FILE");
}

constexpr int64_t kLongest = 1 << 20;  // tokens in a sentence

// A corpus of random pieces with the given lengths, in a temporary file that the destructor removes.
class RandomCorpus {
 public:
  RandomCorpus(const std::string& lengths, int64_t vocabulary) {
    char name[] = "/tmp/tandem-bench-XXXXXX";
    const int file = mkstemp(name);
    require(file >= 0, "cannot create a temporary file in /tmp");
    ::close(file);
    path_ = name;
    PhiloxStream random(1, 1);
    data::LineReader reader(lengths);
    data::CorpusWriter writer(path_, static_cast<int32_t>(vocabulary), static_cast<int32_t>(vocabulary));
    for (std::string line; reader.next(line);) {
      int64_t source = 0, target = 0;
      require(std::sscanf(line.c_str(), "%ld %ld", &source, &target) == 2 && source >= 1 && target >= 1 &&
                  std::max(source, target) <= kLongest,
              "{}:{}: \"{}\" is not a pair of lengths of 1 to {}", lengths, reader.lines(), line, kLongest);
      writer.add(pieces(random, source - 1, vocabulary), pieces(random, target - 1, vocabulary));
    }
    writer.finish();
  }
  ~RandomCorpus() { std::filesystem::remove(path_); }
  RandomCorpus(const RandomCorpus&) = delete;
  RandomCorpus& operator=(const RandomCorpus&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  static std::vector<int32_t> pieces(PhiloxStream& random, int64_t count, int64_t vocabulary) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(4 + random.below(static_cast<uint64_t>(vocabulary - 4)));
    }
    return ids;
  }

  std::filesystem::path path_;
};

void print(const train::StepBench& bench) {
  const double peak = bench.ceilings.product_flops, bandwidth = bench.ceilings.copy_bytes;
  std::printf("%s, %ld parameters\n", bench.device.c_str(), bench.parameters);
  std::printf("ceilings measured here: %.1f TFLOP/s (large matrix product), %.2f TB/s (copy, read + written)\n",
              peak / 1e12, bandwidth / 1e12);
  backend::OpProfile all, products;
  if (!bench.profile.empty()) {
    std::printf("%8s %6s %9s %9s %8s %9s %8s %8s  %s\n", "ms", "calls", "us/call", "GFLOP", "GB", "TFLOP/s", "TB/s",
                "% floor", "op, each alone; all its calls");
  }
  for (const backend::OpProfile& op : bench.profile) {
    const double floor = std::max(op.flops / peak, op.bytes / bandwidth);
    std::printf("%8.3f %6ld %9.1f %9.1f %8.3f %9.1f %8.2f %8.1f  %s\n", op.seconds * 1e3, op.calls,
                op.seconds / static_cast<double>(op.calls) * 1e6, op.flops / 1e9, op.bytes / 1e9,
                op.flops / op.seconds / 1e12, op.bytes / op.seconds / 1e12, 100 * floor / op.seconds, op.name.c_str());
    for (backend::OpProfile* sum : {&all, op.flops > 0 ? &products : nullptr}) {
      if (sum != nullptr) {
        sum->seconds += op.seconds, sum->flops += op.flops, sum->bytes += op.bytes;
      }
    }
  }
  if (!bench.profile.empty()) {
    std::printf("all ops alone: %.2f ms, of these matrix products and attention %.2f ms at %.1f TFLOP/s\n",
                all.seconds * 1e3, products.seconds * 1e3, products.flops / products.seconds / 1e12);
    std::printf("in the step the ops' %.2f GB are %.2f TB/s (%.1f %% of the copy)\n", all.bytes / 1e9,
                all.bytes / bench.seconds / 1e12, 100 * all.bytes / bench.seconds / bandwidth);
  }
  if (bench.too_long > 0) {
    std::printf("%ld pairs are left out: a side is longer than the model's %ld tokens\n", bench.too_long,
                bench.longest);
  }
  std::printf(
      "step: %.3f ms, %.0f source + %.0f target tokens in %.2f micro-batches, %.0f target tokens/s, %.1f TFLOP/s (%.1f "
      "%% of "
      "the large product), dead rows %.2f %%, memory %.2f GiB\n",
      bench.seconds * 1e3, bench.source_tokens, bench.target_tokens, bench.micro_batches,
      bench.target_tokens / bench.seconds, bench.flops / bench.seconds / 1e12, 100 * bench.flops / bench.seconds / peak,
      100 * bench.dead_share, static_cast<double>(bench.memory) / (1 << 30));
}

void run_peer(const Options& options, const train::TrainConfig& config, const train::StepBench& bench) {
  const model::ModelConfig& model = config.model;
  const std::string command =
      fmt::format("{} {} --lengths {} --tokens {} --d {} --f {} --h {} --L {} --V {} --variants {}",
                  launch::shell_quoted(options.python), launch::shell_quoted(options.peer),
                  launch::shell_quoted(options.write_lengths), config.batch.tokens, model.width, model.feed_forward,
                  model.heads, model.encoder_layers, model.target_vocabulary, launch::shell_quoted(options.variants));
  std::printf("peer: %s\n(the peer has its own dropout; here it is %g)\n", command.c_str(),
              static_cast<double>(model.dropout));
  std::fflush(stdout);
  FILE* pipe = popen(command.c_str(), "r");
  require(pipe != nullptr, "cannot run the peer: {}", command);
  double best = 0;
  for (char line[1024]; std::fgets(line, sizeof line, pipe) != nullptr;) {
    std::fputs(line, stdout);
    double milliseconds = 0, tokens = 0;
    if (std::sscanf(line, "%*s %lf ms/step %lf tgt tok/s", &milliseconds, &tokens) == 2) {
      best = std::max(best, tokens);
    }
  }
  require(pclose(pipe) == 0 && best > 0, "the peer gave no time");
  const double ours = bench.target_tokens / bench.seconds;
  std::printf("peer / tandem, time for a target token: %.3f\n", ours / best);
}

void measure(Options& options) {
  train::TrainConfig config = config_of(options);
  require_sound(options, config);
  if (!options.bench.tune && !(options.algorithms.empty() && config.algorithms.empty())) {
    options.bench.algorithms = read_file(options.algorithms.empty() ? config.algorithms : options.algorithms, 1 << 20);
  }
  train::StepBench bench;
  if (config.data.empty()) {
    const RandomCorpus random(options.lengths, options.vocabulary);
    bench = train::measure_step(data::Corpus::open(random.path(), false), config, options.bench);
  } else {
    const data::Prepared data = data::Prepared::open(config.data);
    train::complete_config(config, data);
    bench = train::measure_step(data.train, config, options.bench);
  }
  print(bench);
  if (options.bench.tune && !options.algorithms.empty()) {
    write_file(options.algorithms, bench.algorithms);
  }
  if (!options.write_lengths.empty()) {
    write_file(options.write_lengths, fmt::format("{}\n", fmt::join(bench.lengths, "\n")));
  }
  if (!options.peer.empty()) {
    run_peer(options, config, bench);
  }
}

}  // namespace

void add_bench(Program& program) {
  auto options = std::make_shared<Options>();  // shared with the action that runs after parsing
  Command command = program.add("bench",
                                "Measures the training step of a config against the hardware's limits and a peer. "
                                "Without a config the step is that of transformer-base with default settings.");
  command.option("what", options->what, "what to measure").choices({"step"});
  command.option("settings", options->settings, "[CONFIG.toml] [key=value ...]: settings as for `tandem train`");
  for (Shorthand& shorthand : options->shorthands) {
    command.option(shorthand.name, shorthand.value, shorthand.help);
  }
  command.option("--workers", options->bench.ranks, "measure the share of one of so many workers, which sends nothing");
  command.option("--lengths", options->lengths, "instead of data: a file of \"source target\" token counts");
  command.option("--vocabulary", options->vocabulary, "pieces, with --lengths");
  command.option("--steps", options->bench.steps, "steps to time");
  command.flag("--tune", options->bench.tune, "first time the algorithms of every matrix product and keep the fastest");
  command.option("--algorithms", options->algorithms, "table of algorithms: written with --tune, else used");
  command.no_flag("--no-profile", options->bench.profile, "leave out the table of single ops");
  command.option("--write-lengths", options->write_lengths, "write the timed pairs' lengths to this file");
  command.option("--peer", options->peer, "a program that takes --lengths FILE and prints ms/step, run afterwards");
  command.option("--python", options->python, "the Python to run the peer with");
  command.option("--variants", options->variants, "variants that the peer runs");
  command.example(
      "tandem bench step configs/transformer-base.toml data=data/en-de\n"
      "tandem bench step --data data/en-de --model big --no-profile");
  command.run([options] { measure(*options); });
}

}  // namespace tandem::cli
