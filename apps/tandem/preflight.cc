// tandem preflight: predicts a run on these hosts. tandem preflight-worker: the process that it starts there.
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "data/prepared.h"
#include "dist/process_group.h"
#include "hosts_options.h"
#include "preflight/measure.h"
#include "preflight/prediction.h"
#include "train/group_run.h"

namespace tandem::cli {
namespace {

struct Options {
  HostsOptions hosts;
  std::string config;
  std::vector<std::string> overrides;
  double price = 0;  // 0 = not given
  bool json = false;
};

void run_preflight(Options& given) {
  const train::TrainConfig config =
      train::load_config(given.config, given.overrides);  // so that mistakes are found here, not on the hosts
  require(given.price >= 0, "--price-per-hour is {}: give 0 or more", given.price);
  std::vector<std::string>& command = given.hosts.launch.command;
  command = {"preflight-worker", "--config", given.config};
  if (given.price > 0) {
    command.insert(command.end(), {"--price-per-hour", fmt::format("{}", given.price)});
  }
  if (given.json) {
    command.emplace_back("--json");
  }
  command.insert(command.end(), given.overrides.begin(), given.overrides.end());
  const launch::LaunchOptions options = launch_options(given.hosts);
  if (given.hosts.push) {
    push_to_hosts(options, given.config, config.data);
  }
  launch::launch(options);
}

// Measures together with the other ranks; an error of one rank stops all.
preflight::Measurements measured_by(dist::ProcessGroup& group, const train::TrainConfig& config,
                                    const data::Prepared& data) {
  try {
    preflight::Measurements measured = preflight::measure_all(group, config, data);
    group.leave();
    return measured;
  } catch (const std::exception& error) {
    group.stop(error.what());
    throw;
  }
}

void run_worker(const Options& given) {
  train::TrainConfig config = train::load_config(given.config, given.overrides);
  const data::Prepared data = data::Prepared::open(config.data);
  train::complete_config(config, data);
  const dist::World world = dist::world_from_environment();
  log::set_quiet(world.rank != 0);
  train::take_own_part(config, world);
  const auto group =
      dist::join_process_group(world, train::group_identity(config, data, ""), train::group_options(config.dist));
  const preflight::Measurements measured = measured_by(*group, config, data);
  const preflight::Prediction prediction =
      preflight::predict(measured, config, given.price > 0 ? given.price : preflight::kNotMeasured);
  if (world.rank == 0) {
    const std::string text =
        given.json ? preflight::preflight_json(measured, prediction) : preflight::preflight_text(measured, prediction);
    print(text);
    require(prediction.problem.empty(), "{}", prediction.problem);
  }
}

void add_options(Command& command, Options& options) {
  command.option("--config", options.config, "the run's settings, a TOML file")
      .required()
      .option("--price-per-hour", options.price, "price of an hour of all hosts together, for the cost of the run")
      .flag("--json", options.json, "print one JSON object")
      .option("settings", options.overrides, "key=value: settings that override those of the file");
}

}  // namespace

void add_preflight(Program& program) {
  auto options = std::make_shared<Options>();  // shared with the action that runs after parsing
  Command command =
      program.add("preflight", "Measures hosts and links within a minute, and predicts step time, duration and cost.");
  add_options(command, *options);
  add_hosts_options(command, options->hosts);
  command
      .example(
          "tandem preflight --hosts gpu1:2,gpu2:2 --push --config configs/transformer-base.toml data=data/en-de "
          "run=runs/en-de\n"
          "Nothing is trained. The hosts need tandem, the config and the data, as for `tandem launch`: --push copies "
          "them.")
      .run([options] { run_preflight(*options); });
}

void add_preflight_worker(Program& program) {
  auto options = std::make_shared<Options>();
  Command command = program.add("preflight-worker", "One worker of a preflight, started by `tandem preflight`.");
  add_options(command, *options);
  command.hidden().run([options] { run_worker(*options); });
}

}  // namespace tandem::cli
