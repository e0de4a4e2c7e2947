// Starts workers on hosts, and ends all of them if one fails.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"

namespace tandem::launch {

struct LaunchOptions {
  std::vector<Host> hosts;
  // The command that reaches other hosts.
  std::string agent = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";
  std::string binary;                    // path of tandem, the same on all hosts
  std::vector<std::string> command;      // arguments of each worker
  std::string directory;                 // working directory of the workers, on all hosts
  std::string address;                   // address of rank 0's host for the others; empty: found automatically
  std::vector<std::string> environment;  // NAME=VALUE for the workers
  int restarts = 0;                      // most restarts after failures
};

// Returns when all workers have ended successfully. SIGINT and SIGTERM are passed on as SIGTERM, and end in Interrupted
// once all workers have ended; a second one ends everything at once. Any worker's failure ends all of them and is an
// Error that names the first cause: rank, host, message. Rank 0's lines are printed as they are; other ranks' lines are
// prefixed with their rank and host.
void launch(const LaunchOptions& options);

// Runs workers on this machine alone, in the current directory.
void launch_here(int workers, const std::vector<std::string>& command);

// This program's own path, by which hosts with the same files have it too.
std::string own_binary();

}  // namespace tandem::launch
