// Copies the program, config and data to hosts that lack them or have others, and verifies the copies by SHA-256.
//
// The hosts need only a shell with mkdir, cat, mv, chmod, find and sha256sum.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"

namespace tandem::launch {

std::string sha256_file(const std::string& path);

// agent_command: reaches a host. binary: this program. paths: files and directories, absolute, the same on all hosts.
// directory: the workers' working directory; it is created if it is missing. Does nothing for this host itself. Fails
// if a host cannot run the program even afterwards.
void push(const std::vector<Host>& hosts, const std::string& agent_command, const std::string& binary,
          const std::vector<std::string>& paths, const std::string& directory);

}  // namespace tandem::launch
