// Copies the program, config and data to hosts that lack them or have others, and verifies the copies by SHA-256.
//
// The hosts need only a shell with mkdir, cat, mv, chmod, find and sha256sum.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/hosts.h"

namespace tandem::launch {

// The result of a shell command on a host that was reached through the agent command.
struct RemoteResult {
  int code = 0;
  std::string out, err;
};
// `input` is a file that becomes the command's standard input, or empty.
RemoteResult run_on_host(const Host& host, const std::string& agent_command, const std::string& command,
                         const std::string& input = "");

std::string sha256_file(const std::string& path);

class Push {
 public:
  // binary: this program. paths: files and directories, absolute, the same on all hosts. directory: the workers'
  // working directory; it is created if it is missing.
  Push(std::string agent_command, std::string binary, std::vector<std::string> paths, std::string directory);

  // Does nothing for this host itself. Fails if the host cannot run the program even afterwards.
  void to(const Host& host);

 private:
  using Files = std::map<std::string, std::string>;  // SHA-256 by path

  std::string run(const Host& host, const std::string& command, const std::string& input = "");
  Files files_there(const Host& host, const Files& wanted);
  void send(const Host& host, const std::string& file, const std::string& to, bool executable);
  void send_files(const Host& host, const Files& files);
  void send_binary(const Host& host);
  void send_libraries(const Host& host);

  const std::string agent_command_, binary_, directory_;
  Files files_;
};

}  // namespace tandem::launch
