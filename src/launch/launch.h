// Starts workers on hosts, and ends them all when one ends badly.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"

namespace tandem {

struct LaunchOptions {
  std::vector<Host> hosts;
  // Reaches a host that is not this one.
  std::string agent = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";
  std::string binary;                    // of tandem, the same path on all hosts
  std::vector<std::string> command;      // arguments of each worker
  std::string directory;                 // where workers start, on all hosts
  std::string address;                   // of rank 0's host for the others; empty: found out
  std::vector<std::string> environment;  // NAME=VALUE, for the workers
  int restarts = 0;                      // after failures
};

// Returns when all workers have ended well. SIGINT and SIGTERM are passed on as SIGTERM, and end in Interrupted once
// all workers have ended; a second one ends everything at once. Any worker's failure ends all of them and is an Error
// that names the first cause: rank, host, message. Rank 0's lines come out as they are, those of the others behind
// their rank and host.
void launch(const LaunchOptions& options);

// Workers on this machine alone, in the current directory.
void launch_here(int workers, const std::vector<std::string>& command);

// This program's own path, as hosts with the same files have it.
std::string own_binary();

}  // namespace tandem
