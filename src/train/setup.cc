#include "train/setup.h"

#include <fmt/ranges.h>

#include "core/log.h"

namespace tandem::train {

void complete_config(TrainConfig& config, const data::Prepared& data) {
  for (const auto& [wanted, side] : {std::pair(&config.model.source_vocabulary, Side::source),
                                     std::pair(&config.model.target_vocabulary, Side::target)}) {
    const int64_t size = data.subwords(side).size();
    require(*wanted == 0 || *wanted == size, "the config asks for a vocabulary of {} pieces, but {} has {}", *wanted,
            data.directory.string(), size);
    *wanted = size;
  }
  if (!data.joint && config.model.tie == model::Tie::all) {
    log::info("the vocabularies are separate: only target embedding and output are tied (model.tie = \"output\")");
    config.model.tie = model::Tie::output;
  }
  config.batch.seed = config.seed;
  config.batch.max_length = config.model.max_length;
  config.schedule = optim::with_defaults(config.schedule, config.model.width, config.stop.max_steps);
  std::string wrong = problems(config.model);
  const std::string schedule = problems(config.schedule);
  wrong += (wrong.empty() || schedule.empty() ? "" : "\n") + schedule;
  require(wrong.empty(), "{}", wrong);
  require(config.stop.patience == 0 || data.valid.size() > 0,
          "stop.patience needs a validation set; prepare the data with --valid-source and --valid-target");
}

void check_resume(const store::Checkpoint& saved, const TrainConfig& config, const std::string& data_fingerprint,
                  const std::filesystem::path& run) {
  require(saved.state.data_fingerprint == data_fingerprint,
          "{} was trained on other data than {}: give the same data, another run directory, or --start-over",
          run.string(), config.data);
  const ConfigChanges changes = compare_for_resume(parse_config(saved.config_toml, "the checkpoint's config"), config);
  require(changes.refused.empty(),
          "{} cannot go on with another model or seed ({}): undo the change, give another run directory, or "
          "--start-over",
          run.string(), fmt::join(changes.refused, "; "));
  for (const std::string& change : changes.allowed) {
    log::info("changed since the checkpoint: {}", change);
  }
}

}  // namespace tandem::train
