#include "train/read_report.h"

#include <algorithm>

#include "core/error.h"
#include "store/inspection.h"
#include "train/config.h"

namespace tandem::train {

namespace fs = std::filesystem;

namespace {

double bytes_below(const fs::path& directory) {
  double bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code none;
    const uintmax_t size = fs::file_size(entry->path(), none);
    bytes += none ? 0 : static_cast<double>(size);
  }
  return bytes;
}

void describe_newest(const fs::path& path, observe::CheckpointFacts& facts) {
  const store::Inspected inspected = store::inspect_directory(path, false);
  const auto has = [&](const char* role) {
    return std::ranges::any_of(inspected.files,
                               [&](const store::InspectedFile& file) { return file.file.role == role; });
  };
  const char* unread = has(role::kMovingAverage) ? role::kWeights : role::kMovingAverage;
  double listed = 0;
  for (const store::InspectedFile& file : inspected.files) {
    const bool inference = file.file.role != role::kOptimizer && file.file.role != unread;
    facts.files.push_back(
        {file.file.name, file.file.role, file.holds, static_cast<double>(file.file.bytes), inference});
    listed += static_cast<double>(file.file.bytes);
  }
  facts.files.push_back({"manifest.json", "manifest", "names, sizes and checksums of the others",
                         static_cast<double>(inspected.bytes) - listed, true});
  facts.step = inspected.state ? inspected.state->step : 0;
  facts.parameters = static_cast<double>(inspected.parameters);
  facts.problems = inspected.damage;
}

observe::RunPlan plan_of(const TrainConfig& config) {
  const optim::ScheduleConfig schedule =
      optim::with_defaults(config.schedule, config.model.width, config.stop.max_steps);
  observe::RunPlan plan{.max_steps = config.stop.max_steps,
                        .max_epochs = config.stop.max_epochs,
                        .max_minutes = config.stop.max_minutes,
                        .schedule = "",
                        .rate_at = {}};
  if (problems(schedule).empty()) {
    plan.schedule = optim::explain(schedule);
    plan.rate_at = [schedule](int64_t step) { return optim::learning_rate(schedule, step); };
  }
  return plan;
}

// Facts about the newest checkpoint of the run and about all that are kept; step -1 if there is none.
observe::CheckpointFacts checkpoint_facts(const fs::path& run) {
  observe::CheckpointFacts facts;
  const std::vector<fs::path> found = store::list_checkpoints(run);
  if (found.empty()) {
    return facts;
  }
  facts.kept = static_cast<double>(found.size());
  facts.kept_bytes = 0;
  for (const fs::path& path : found) {
    facts.kept_bytes += bytes_below(path);
  }
  std::error_code error;
  const fs::space_info space = fs::space(run, error);
  facts.disk_free_bytes = error ? observe::kUnknown : static_cast<double>(space.available);
  facts.path = found.back().string();
  try {
    describe_newest(found.back(), facts);
  } catch (const std::exception& problem) {  // it is just being deleted, or is damaged
    facts.problems.emplace_back(problem.what());
  }
  return facts;
}

}  // namespace

report::RunReport read_report(const fs::path& run, const ReportOptions& options) {
  observe::RunData data = observe::read_run(run);
  observe::RunPlan plan;
  observe::CheckpointFacts facts = checkpoint_facts(run);
  if (!data.config.empty()) {
    try {
      const TrainConfig config = parse_config(data.config, "config.toml");
      plan = plan_of(config);
      facts.most_kept = static_cast<double>(config.checkpoint.keep_last + config.checkpoint.keep_best);
    } catch (const Error&) {  // a config of another version: the report leaves it out
    }
  }
  // config.data is not used: on another machine, or later, it may hold other data.
  data.stats = observe::read_stats(options.data.empty() ? run : fs::path(options.data));
  return report::make_report(std::move(data), std::move(plan), facts, observe::unix_time(), options.price_per_hour);
}

}  // namespace tandem::train
