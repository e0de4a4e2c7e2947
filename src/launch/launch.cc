#include "launch/launch.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "dist/authentication.h"
#include "dist/environment.h"
#include "launch/attempt.h"
#include "launch/child.h"

namespace tandem::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenAttempts{1000};

void require_sound(const LaunchOptions& options) {
  require(!options.hosts.empty(), "no hosts given: add --hosts, as in --hosts a:2,b:2");
  require(!options.command.empty(), "nothing to start: give a command after --, as in -- train config.toml run=DIR");
  require(options.restarts >= 0, "--restarts must not be negative, but is {}", options.restarts);
  for (const std::string& entry : options.environment) {
    require(entry.find('=') != std::string::npos && entry.front() != '=', "'{}' is not a variable: give NAME=VALUE",
            entry);
  }
}

void remove_hosts(std::vector<Host>& hosts, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    log::warning("host {} no longer answers and is left out", name);
    std::erase_if(hosts, [&](const Host& host) { return host.name == name; });
  }
}

}  // namespace

std::string own_binary() {
  const std::string script = dist::variable("TANDEM_PROGRAM");  // set by a script that brings its own libraries
  return script.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : script;
}

void launch_here(int workers, const std::vector<std::string>& command) {
  LaunchOptions options;
  options.hosts = {{"localhost", workers}};
  options.binary = own_binary();
  options.command = command;
  options.directory = std::filesystem::current_path().string();
  launch(options);
}

void launch(const LaunchOptions& options) {
  require_sound(options);
  const Signals signals;
  const IgnoredPipeSignal ignored;
  std::vector<Host> hosts = options.hosts;
  LaunchOptions all = options;
  all.environment.push_back("TANDEM_LAUNCH=" + dist::random_token());  // workers recognise a restart by it
  for (int attempt = 0;; ++attempt) {
    std::string cause;
    std::vector<std::string> lost;
    {
      Attempt one(all, hosts, signals);
      cause = one.run();
      lost = one.lost_hosts();
    }
    if (const int number = signals.stop_signal(); number != 0) {
      throw Interrupted(number, cause.empty() ? fmt::format("{}: all workers have ended", strsignal(number)) : cause);
    }
    if (cause.empty()) {
      break;
    }
    require(attempt < options.restarts, "{}", cause);
    remove_hosts(hosts, lost);
    require(!hosts.empty(), "{}; no host is left for a restart", cause);
    log::warning("{}; restart {} of {} with {} workers on {} hosts", cause, attempt + 1, options.restarts,
                 count_workers(hosts), hosts.size());
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

}  // namespace tandem::launch
