// Starts workers on hosts, and ends all of them if one fails.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/signals.h"

namespace tandem::launch {

// ---- hosts

struct Host {
  std::string name;
  int workers = 1;
};

// "a:2,b" means two workers on a and one on b. Fails for an empty name, a number below 1, and a host named twice.
std::vector<Host> parse_hosts(const std::string& text);

// Whether the name means this machine: "localhost", a loopback address, or its own name.
bool is_this_host(const std::string& name);

int count_workers(const std::vector<Host>& hosts);

// Splits a command as a shell would: spaces separate words, quotes and backslashes join.
std::vector<std::string> split_command(const std::string& command);

// Quotes the word, so that a shell takes it as it is.
std::string shell_quoted(const std::string& word);

// ---- workers on hosts

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
  // Time for workers to save and end after a signal, or once the launcher is gone; then they are killed.
  std::chrono::seconds grace{kUsualGrace};
};

// Returns when all workers have ended successfully. SIGINT, SIGTERM and SIGHUP are passed on as SIGTERM, and end in
// Interrupted once all workers have ended well. Any worker's failure ends all of them and is an Error that names the
// first cause: rank, host, message. Rank 0's lines are printed as they are; other ranks' lines are prefixed with their
// rank and host.
void launch(const LaunchOptions& options);

// Runs workers on this machine alone, in the current directory.
void launch_here(int workers, const std::vector<std::string>& command,
                 std::chrono::seconds grace = std::chrono::seconds(kUsualGrace));

// This program's own path; hosts with the same files have it at the same path.
std::string own_binary();

// ---- files for hosts

// Copies the program and these files and directories, absolute and the same on all hosts, to hosts where they are
// missing or different, and verifies the copies by SHA-256; creates the workers' directory if it is missing. Skips this
// host. The hosts need only a shell with mkdir, cat, mv, rm, chmod and sha256sum. Fails if a host cannot run the
// program even afterwards.
void push(const LaunchOptions& options, const std::vector<std::string>& paths);

std::string sha256_file(const std::string& path);

}  // namespace tandem::launch
