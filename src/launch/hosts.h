// The hosts of a launch.
#pragma once

#include <string>
#include <vector>

namespace tandem::launch {

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

}  // namespace tandem::launch
