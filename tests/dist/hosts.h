// Network namespaces as hosts: a, b, c, ... at 10.77.0.1, .2, .3, each with one interface (eth0) on a common bridge,
// and a desk at 10.77.0.254 from which a user starts things. Made and removed by the test; needs root.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "temporary_directory.h"

namespace tandem::testing {

// Runs a shell command and returns its exit code and output.
struct CommandResult {
  int code = -1;
  std::string output;
};

inline CommandResult run_command(const std::string& command) {
  CommandResult result;
  std::FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  std::array<char, 4096> bytes{};
  for (size_t count = 0; (count = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
    result.output.append(bytes.data(), count);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

class Hosts {
 public:
  // Why hosts cannot be made here, or "" if they can. For GTEST_SKIP.
  static std::string unavailable() {
    if (geteuid() != 0) {
      return "network namespaces need root";
    }
    const std::string name = "tandem-try-" + std::to_string(getpid());
    const CommandResult made = run_command("ip netns add " + name + " && ip netns del " + name);
    return made.code == 0 ? "" : "network namespaces cannot be made here: " + made.output;
  }

  // `rate` ("100mbit") shapes every host's port in both directions; empty: as fast as the machine is.
  explicit Hosts(int count, const std::string& rate = "") : count_(count), prefix_("td" + std::to_string(getpid())) {
    remove();
    require_success("ip netns add " + desk());
    require_success(in_desk("ip link set lo up"));
    require_success(in_desk("ip link add bridge type bridge"));
    require_success(in_desk("ip addr add 10.77.0.254/24 dev bridge"));
    require_success(in_desk("ip link set bridge up"));
    for (int i = 0; i < count; ++i) {
      add(i, rate);
    }
    write_script();
  }
  ~Hosts() { remove(); }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  static std::string name(int i) { return std::string(1, static_cast<char>('a' + i)); }
  static std::string address(int i) { return "10.77.0." + std::to_string(i + 1); }
  std::string space(int i) const { return prefix_ + name(i); }  // its network namespace
  std::string in_host(int i, const std::string& command) const { return "ip netns exec " + space(i) + " " + command; }
  std::string in_desk(const std::string& command) const { return "ip netns exec " + desk() + " " + command; }

  // A stand-in for ssh: HOST COMMAND.
  std::string agent() const { return (scratch_ / "reach").string(); }

  void cut(int i) const { require_success(in_desk("ip link set port" + name(i) + " down")); }
  void join(int i) const { require_success(in_desk("ip link set port" + name(i) + " up")); }

 private:
  std::string desk() const { return prefix_ + "desk"; }

  static void require_success(const std::string& command) {
    const CommandResult result = run_command(command);
    if (result.code != 0) {
      throw std::runtime_error(command + ": " + result.output);
    }
  }

  void add(int i, const std::string& rate) const {
    const std::string port = "port" + name(i);
    require_success("ip netns add " + space(i));
    require_success(in_desk("ip link add " + port + " type veth peer name eth0 netns " + space(i)));
    require_success(in_desk("ip link set " + port + " master bridge up"));
    require_success(in_host(i, "ip link set lo up"));
    require_success(in_host(i, "ip addr add " + address(i) + "/24 dev eth0"));
    require_success(in_host(i, "ip link set eth0 up"));
    if (!rate.empty()) {
      const std::string shape = " root tbf rate " + rate + " burst 128kb latency 50ms";
      require_success(in_host(i, "tc qdisc add dev eth0" + shape));
      require_success(in_desk("tc qdisc add dev " + port + shape));
    }
  }

  void write_script() const {
    std::ofstream(agent()) << "#!/bin/sh\nhost=$1\nshift\nexec ip netns exec " << prefix_ << "$host sh -c \"$*\"\n";
    std::filesystem::permissions(agent(), std::filesystem::perms::owner_all);
  }

  void remove() const {
    std::vector<std::string> spaces{desk()};
    for (int i = 0; i < count_; ++i) {
      spaces.push_back(space(i));
    }
    for (const std::string& space : spaces) {
      run_command("ip netns pids " + space + " | xargs -r kill -9; ip netns del " + space);
    }
  }

  const int count_;
  const std::string prefix_;  // prefix of the namespaces' names, unique to this process
  const TemporaryDirectory scratch_;
};

}  // namespace tandem::testing
