// The names and links of a run's checkpoints.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/manifest.h"
#include "core/parse.h"
#include "store/checkpoint.h"

namespace tandem::store {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";

// The step in a checkpoint directory's name, or -1 for another name.
int64_t step_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  return name.starts_with(kPrefix) ? parse_number<int64_t>(name.substr(kPrefix.size())).value_or(-1) : -1;
}

// The value of the metric, if the checkpoint was validated at its own step.
std::optional<double> score_of(const fs::path& directory, Metric metric) {
  try {
    const CheckpointState state = load_checkpoint(directory, false).state;
    const auto found = state.metrics.find(name_of(metric));
    if (state.metrics_step == state.step && found != state.metrics.end()) {
      return found->second;
    }
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
  return std::nullopt;
}

// Renames the directory first, so that a kill during the removal leaves no partial checkpoint.
void remove_checkpoint(const fs::path& directory) {
  const fs::path aside = directory.parent_path() / fmt::format(".{}.deleted", directory.filename().string());
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(directory, aside, error);
  if (!error) {
    sync_directory(directory.parent_path());
    fs::remove_all(aside, error);
  }
  if (error) {
    log::warning("cannot remove the old checkpoint {}: {}", directory.string(), error.message());
  }
}

// The damage in one line; empty if the checkpoint is sound.
std::string damage_of(const fs::path& directory) {
  try {
    verify_checkpoint(directory);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

fs::path link_target(const fs::path& run, const char* name) {
  std::error_code error;
  const fs::path target = fs::canonical(run / name, error);
  return error ? fs::path() : target;
}

void set_link(const fs::path& run, const std::string& name, const fs::path& directory) {
  const fs::path aside = run / fmt::format(".{}.partial", name);
  std::error_code error;
  fs::remove(aside, error);
  fs::create_directory_symlink(directory.lexically_relative(run), aside, error);
  if (!error) {
    fs::rename(aside, run / name, error);
  }
  require(!error, "cannot point {} at {}: {}", (run / name).string(), directory.string(), error.message());
  sync_directory(run);
}

void set_best(const fs::path& run, const fs::path& checkpoint) {
  set_link(run, "best", run / "checkpoints" / checkpoint.filename());
}

std::vector<fs::path> list_checkpoints(const fs::path& run) {
  std::vector<fs::path> list;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    if (step_of(entry.path()) >= 0 && has_manifest(entry.path())) {
      list.push_back(entry.path());
    }
  }
  std::sort(list.begin(), list.end(), [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return list;
}

std::vector<fs::path> list_best_checkpoints(const fs::path& run, int64_t count, Metric metric) {
  std::vector<std::tuple<double, int64_t, fs::path>> scored;  // lower is better; of equals, the older
  for (const fs::path& directory : list_checkpoints(run)) {
    if (const auto score = score_of(directory, metric); score && !std::isnan(*score)) {
      scored.emplace_back(higher_is_better(metric) ? -*score : *score, step_of(directory), directory);
    }
  }
  std::sort(scored.begin(), scored.end());
  scored.resize(std::min(scored.size(), static_cast<size_t>(count)));
  std::vector<fs::path> best;
  best.reserve(scored.size());
  for (const auto& entry : scored) {
    best.push_back(std::get<2>(entry));
  }
  return best;
}

void remove_stale_checkpoints(const fs::path& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    if (entry.path().filename().string().starts_with('.')) {
      fs::remove_all(entry.path(), error);
      if (error) {
        log::warning("cannot remove the unfinished checkpoint {}: {}", entry.path().string(), error.message());
      }
    }
  }
}

void remove_old_checkpoints(const fs::path& run, const KeptCheckpoints& keep, Metric metric) {
  const std::vector<fs::path> all = list_checkpoints(run);
  std::set<fs::path> kept = {link_target(run, "latest").filename(), link_target(run, "best").filename()};
  for (const fs::path& directory : list_best_checkpoints(run, keep.best, metric)) {
    kept.insert(directory.filename());
  }
  const int64_t old = static_cast<int64_t>(all.size()) - keep.newest;
  for (int64_t i = 0; i < old; ++i) {
    const fs::path& directory = all[static_cast<size_t>(i)];
    if (!kept.contains(directory.filename())) {
      remove_checkpoint(directory);
    }
  }
}

std::optional<fs::path> find_latest(const fs::path& run) {
  std::vector<fs::path> candidates = list_checkpoints(run);
  std::reverse(candidates.begin(), candidates.end());
  std::error_code none;
  if (!fs::exists(run / "latest", none) && (!candidates.empty() || fs::is_symlink(run / "latest", none))) {
    log::warning("{} is missing or leads nowhere; {}", (run / "latest").string(),
                 candidates.empty() ? "no checkpoint is left, so the run starts over" : "using the newest checkpoint");
  }
  if (const fs::path latest = link_target(run, "latest"); !latest.empty()) {
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](const fs::path& other) { return other.filename() == latest.filename(); });
  }
  std::string first_damage;
  for (const fs::path& directory : candidates) {
    const std::string damage = damage_of(directory);
    if (damage.empty()) {
      if (!first_damage.empty()) {
        log::warning("{}; using the older checkpoint {}", first_damage, directory.string());
      }
      return directory;
    }
    first_damage = first_damage.empty() ? damage : first_damage;
  }
  require(candidates.empty(), "no checkpoint of {} is sound: {}", run.string(), first_damage);
  return std::nullopt;
}

fs::path resolve_model(const fs::path& path) {
  std::error_code error;
  require(fs::exists(path, error), "there is no model at {}", path.string());
  require(fs::is_directory(path, error), "{} is a file: give a run, checkpoint or model directory", path.string());
  if (has_manifest(path)) {
    const std::string kind = read_manifest(path).kind;
    require(kind != "prepared", "{} is prepared data, not a model: give a run, checkpoint or model directory",
            path.string());
    return fs::canonical(path);
  }
  if (fs::path best = link_target(path, "best"); !best.empty()) {
    return best;
  }
  const auto latest = find_latest(path);
  require(latest.has_value(), "{} holds no checkpoint: give a run, checkpoint or model directory", path.string());
  return fs::canonical(*latest);
}

}  // namespace tandem::store
