#include "hosts_options.h"

#include <filesystem>

namespace tandem::cli {

void add_hosts_options(Command& command, HostsOptions& options) {
  command
      .option("--hosts", options.hosts,
              "hosts with their numbers of workers: a:2,b:2 (one worker if no number is given)")
      .required()
      .option("--agent", options.launch.agent, "the command that reaches a host; it gets the host and a shell command")
      .option("--binary", options.launch.binary, "tandem's path on the hosts (default: the same as here)")
      .flag("--push", options.push, "first copy tandem, the config and the data to hosts that lack them")
      .option("--address", options.launch.address,
              "address of the first host for the others (default: all of its addresses are tried)")
      .option("--env", options.launch.environment,
              "NAME=VALUE: a variable for the workers; may be given several times");
}

launch::LaunchOptions launch_options(const HostsOptions& given) {
  launch::LaunchOptions options = given.launch;
  options.hosts = launch::parse_hosts(given.hosts);
  options.binary = options.binary.empty() ? launch::own_binary() : options.binary;
  options.directory = std::filesystem::current_path().string();
  return options;
}

void push_to_hosts(const launch::LaunchOptions& options, const std::string& config, const std::string& data) {
  const auto whole = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
  };
  launch::push(options, {whole(config), whole(data)});
}

}  // namespace tandem::cli
