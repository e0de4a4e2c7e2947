// tandem launch: starts a command on many hosts. tandem agent: what it starts on each of them.
#include "launch/launch.h"

#include <filesystem>
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "launch/agent.h"
#include "launch/push.h"
#include "train/config.h"

namespace tandem::cli {
namespace {

struct Options {
  std::string hosts, address, binary;
  std::string agent = LaunchOptions().agent;
  std::vector<std::string> environment, command;
  int restarts = 0;
  bool push = false;
};

// The config and the data that a train command names, as absolute paths.
std::vector<std::string> files_of(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) {
    if (!word.starts_with("-")) {
      words.push_back(word);
    }
  }
  require(words.size() >= 2 && words[0] == "train", "--push knows what `train CONFIG` needs, not `{}`",
          command.empty() ? "" : command[0]);
  const TrainConfig config = load_config(words[1], {words.begin() + 2, words.end()});
  require(!config.data.empty(), "no data given: add data=DIR, a directory made by `tandem prepare`");
  std::vector<std::string> paths;
  for (const std::string& path : {words[1], config.data}) {
    paths.push_back(std::filesystem::absolute(path).lexically_normal().string());
  }
  return paths;
}

void run_launch(const Options& given) {
  LaunchOptions options;
  options.hosts = parse_hosts(given.hosts);
  options.agent = given.agent;
  options.binary = given.binary.empty() ? own_binary() : given.binary;
  options.command = given.command;
  options.directory = std::filesystem::current_path().string();
  options.address = given.address;
  options.environment = given.environment;
  options.restarts = given.restarts;
  if (given.push) {
    Push push(options.agent, options.binary, files_of(given.command), options.directory);
    for (const Host& host : options.hosts) {
      push.to(host);
    }
  }
  launch(options);
}

}  // namespace

void add_launch(Program& program) {
  auto options = std::make_shared<Options>();  // shared with the action that runs after parsing
  program.add("launch", "Starts a command on many hosts, and ends it everywhere when one of its workers fails.")
      .option("--hosts", options->hosts, "hosts with their numbers of workers: a:2,b:2 (a host alone has one)")
      .required()
      .option("--agent", options->agent, "the command that reaches a host; it gets the host and a shell command")
      .option("--binary", options->binary, "tandem's path on the hosts (default: the same as here)")
      .flag("--push", options->push, "first bring tandem, the config and the data to hosts that lack them")
      .option("--restarts", options->restarts,
              "start again after a failure, at most so often, without hosts that are gone")
      .option("--address", options->address, "address of the first host for the others (default: all it has are tried)")
      .option("--env", options->environment, "NAME=VALUE: a variable for the workers; may be given often")
      .option("command", options->command, "what to start, after --")
      .required()
      .example(
          "tandem launch --hosts gpu1:2,gpu2:2 -- train configs/transformer-base.toml data=data/en-de run=runs/en-de\n"
          "Workers start in this directory on every host. ssh must reach the hosts without a password.\n"
          "Ctrl-C saves and ends everything everywhere; a second one ends it at once.")
      .run([options] { run_launch(*options); });
}

void add_agent(Program& program) {
  program.add("agent", "Starts workers as the launcher says, over standard input and output.").hidden().run([] {
    Agent(0, 1).run();
  });
}

}  // namespace tandem::cli
