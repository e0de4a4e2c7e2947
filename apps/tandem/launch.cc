// tandem launch: starts a command on many hosts. tandem agent: the process that it starts on each host.
#include "launch/launch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "hosts_options.h"
#include "launch/agent.h"
#include "train/config.h"

namespace tandem::cli {
namespace {

struct TrainCommand {
  std::string file;
  train::TrainConfig config;
};

// What `train CONFIG key=value ...` names, if its config is a file here: the first word that is one.
std::optional<TrainCommand> train_command(const std::vector<std::string>& words) {
  const auto is_file = [](const std::string& word) { return std::filesystem::is_regular_file(word); };
  const auto config = std::find_if(words.begin(), words.end(), is_file);
  if (words.empty() || words[0] != "train" || config == words.end()) {
    return std::nullopt;
  }
  std::vector<std::string> overrides(config + 1, words.end());
  std::erase_if(overrides,
                [](const std::string& word) { return word.find('=') == std::string::npos || word[0] == '-'; });
  return TrainCommand{*config, train::load_config(*config, overrides)};
}

// If the run is on another machine, prints how to copy it here.
void print_location_of_run(const launch::LaunchOptions& options) {
  const std::string& host = options.hosts.front().name;
  for (const std::string& word : options.command) {
    const std::filesystem::path run = word.starts_with("run=") ? word.substr(4) : "";
    if (!run.empty() && !launch::is_this_host(host) && !std::filesystem::exists(run)) {
      log::info("the run is on {}; to copy it here: mkdir -p {} && scp -r {}:{}/. {}", host, run.string(), host,
                (std::filesystem::path(options.directory) / run).string(), run.string());
    }
  }
}

void run_launch(const HostsOptions& given) {
  launch::LaunchOptions options = launch_options(given);
  const auto train = train_command(options.command);
  if (train) {
    options.grace = std::chrono::seconds(train->config.stop.grace_seconds);
  }
  if (given.push) {
    require(train.has_value(), "--push works with `train CONFIG` only, and `{}` names no config file that exists here",
            fmt::join(options.command, " "));
    push_to_hosts(options, train->file, train->config.data);
  }
  launch::launch(options);
  print_location_of_run(options);
}

}  // namespace

void add_launch(Program& program) {
  auto options = std::make_shared<HostsOptions>();  // shared with the action that runs after parsing
  Command command =
      program.add("launch", "Starts a command on many hosts, and ends it everywhere if one of its workers fails.");
  add_hosts_options(command, *options);
  command
      .option("--restarts", options->launch.restarts,
              "restart after a failure, at most this many times, without hosts that are gone")
      .option("command", options->launch.command, "the command to start, after --")
      .required()
      .example(
          "tandem launch --hosts gpu1:2,gpu2:2 --push -- train configs/transformer-base.toml data=data/en-de "
          "run=runs/en-de\n"
          "Workers start in this directory on every host. ssh must reach the hosts without a password.\n"
          "Ctrl-C saves and ends everything everywhere, within stop.grace_seconds (30 if the config is not a file "
          "here).")
      .run([options] { run_launch(*options); });
}

void add_agent(Program& program) {
  program.add("agent", "Starts workers on behalf of the launcher, over standard input and output.").hidden().run([] {
    launch::run_agent(0, 1);
  });
}

}  // namespace tandem::cli
