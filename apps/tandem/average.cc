// tandem average: one model whose weights are the mean of several checkpoints' weights.
#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/manifest.h"
#include "store/checkpoint.h"
#include "store/safetensors.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

struct AverageArguments {
  std::vector<std::string> paths;
  int64_t last = 0, best = 0;
  std::string out;
  store::Metric metric = store::Metric::nll;
};

// The checkpoints that an argument means: a run's newest or best ones, or the directory itself.
std::vector<fs::path> checkpoints_of(const fs::path& path, const AverageArguments& arguments) {
  if (has_manifest(path) || (arguments.last == 0 && arguments.best == 0)) {
    return {store::resolve_model(path)};
  }
  std::vector<fs::path> all = arguments.best > 0 ? store::list_best_checkpoints(path, arguments.best, arguments.metric)
                                                 : store::list_checkpoints(path);
  const auto wanted = static_cast<size_t>(arguments.best > 0 ? arguments.best : arguments.last);
  require(all.size() >= wanted, "{} has {} {}checkpoints, not {}", path.string(), all.size(),
          arguments.best > 0 ? "validated " : "", wanted);
  all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(wanted));
  return all;
}

// The parameters listed in a model's weights file; no model needs to be built.
ParameterLayout layout_of(const fs::path& directory) {
  ParameterLayout layout;
  const store::SafetensorsReader reader(file_of(directory, read_manifest(directory), role::kWeights));
  for (const store::TensorInfo& tensor : reader.tensors()) {
    require(tensor.shape.size() == 1 || tensor.shape.size() == 2, "tensor '{}' of {} has {} dimensions", tensor.name,
            directory.string(), tensor.shape.size());
    if (tensor.shape.size() == 1) {
      layout.add_vector(tensor.name, tensor.shape[0], Init::zero);
    } else {
      layout.add_matrix(tensor.name, tensor.shape[0], tensor.shape[1], Init::zero);
    }
  }
  return layout;
}

void run_average(const AverageArguments& arguments) {
  std::vector<fs::path> directories;
  for (const std::string& path : arguments.paths) {
    const std::vector<fs::path> found = checkpoints_of(path, arguments);
    directories.insert(directories.end(), found.begin(), found.end());
  }
  for (const fs::path& directory : std::set<fs::path>(directories.begin(), directories.end())) {
    if (const auto times = std::ranges::count(directories, directory); times > 1) {
      log::warning("{} is given {} times and is weighted accordingly", directory.string(), times);
    }
  }
  require(!fs::exists(arguments.out), "{} exists already: choose another name", arguments.out);
  const ParameterLayout layout = layout_of(directories.front());
  std::vector<double> sum(static_cast<size_t>(layout.flat_size()), 0.0);
  std::vector<float> weights(sum.size());
  const View view = host_view(weights.data(), 1, layout.flat_size());
  store::Checkpoint newest;
  for (const fs::path& directory : directories) {
    store::Checkpoint checkpoint = store::load_checkpoint(directory);
    require(newest.source_tokenizer.empty() || (checkpoint.source_tokenizer == newest.source_tokenizer &&
                                                checkpoint.target_tokenizer == newest.target_tokenizer),
            "{} has another tokenizer than {}: their weights cannot be averaged", directory.string(),
            directories.front().string());
    store::load_inference_weights(directory, layout, view);
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += weights[i];
    }
    log::info("{} (step {})", directory.string(), checkpoint.state.step);
    if (newest.source_tokenizer.empty() || checkpoint.state.step > newest.state.step) {
      newest = std::move(checkpoint);
    }
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    weights[i] = static_cast<float>(sum[i] / static_cast<double>(directories.size()));
  }
  newest.state.metrics.clear();  // they belong to one checkpoint, not to the mean
  newest.state.metrics_step = -1;
  store::save_model(arguments.out, newest, layout, view);
  log::info("wrote the mean of {} checkpoints to {}", directories.size(), arguments.out);
}

}  // namespace

void add_average(Program& program) {
  auto arguments = std::make_shared<AverageArguments>();  // shared with the action, which runs after this returns
  program.add("average", "Averages the weights of several checkpoints into one model.")
      .option("paths", arguments->paths, "A run (with --last or --best), or checkpoints and models")
      .required()
      .option("--last", arguments->last, "The newest N checkpoints of each run")
      .option("--best", arguments->best, "The best N validated checkpoints of each run")
      .choice("--metric", arguments->metric, {std::begin(store::kMetricNames), std::end(store::kMetricNames)},
              "The metric of --best")
      .option("-o,--out", arguments->out, "Directory to write; it must not exist")
      .required()
      .example("tandem average runs/en-de --last 5 --out model")
      .run([arguments] {
        require(arguments->last >= 0 && arguments->best >= 0 && (arguments->last == 0 || arguments->best == 0),
                "give --last N or --best N, not both, with N at least 1");
        run_average(*arguments);
      });
}

}  // namespace tandem::cli
