// The options that `launch` and `preflight` share: hosts and numbers of workers, and how to reach the hosts.
#pragma once

#include <string>

#include "cli.h"
#include "launch/launch.h"

namespace tandem::cli {

struct HostsOptions {
  launch::LaunchOptions launch;
  std::string hosts;
  bool push = false;
};

void add_hosts_options(Command& command, HostsOptions& options);

// The options for a launch in the current directory.
launch::LaunchOptions launch_options(const HostsOptions& given);

// Copies the program, the config file and the data to the hosts.
void push_to_hosts(const launch::LaunchOptions& options, const std::string& config, const std::string& data);

}  // namespace tandem::cli
