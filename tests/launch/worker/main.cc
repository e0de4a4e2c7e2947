// A stand-in for tandem under the launcher, without a model:
//   test_worker agent
//   test_worker launch HOSTS AGENT RESTARTS DIRECTORY ARGUMENT...
//   test_worker push HOSTS AGENT DIRECTORY PATH...
//   test_worker --version
//   test_worker work key=value...
// `work` joins the process group, sums in a loop, prints and leaves. steps: number of sums; floats: size of a sum;
// pause: milliseconds after each; prints: lines after each; saves: a file to which rank 0 adds a line when it is
// signalled to stop; fails: "RANK:STEP" where it throws; first: it throws only if this file does not exist yet, and
// creates it; sleeps: "RANK:STEP:MILLISECONDS" for which the main thread sleeps. late:
// "RANK:MILLISECONDS" before it joins. TANDEM_TEST_GRACE: seconds.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/error.h"
#include "core/signals.h"
#include "dist/process_group.h"
#include "launch/agent.h"
#include "launch/launch.h"

namespace tandem::launch {
namespace {

using Settings = std::map<std::string, std::string>;

Settings settings_of(int argc, char** argv) {
  Settings settings = {{"steps", "100"}, {"floats", "1000"}, {"pause", "0"}, {"prints", "0"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    settings[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  return settings;
}

int grace() {
  const std::string given = dist::variable("TANDEM_TEST_GRACE");
  return given.empty() ? kUsualGrace : std::stoi(given);
}

bool is_first(const Settings& settings) {
  if (!settings.contains("first")) {
    return true;
  }
  if (std::filesystem::exists(settings.at("first"))) {
    return false;
  }
  std::ofstream(settings.at("first"));
  return true;
}

void work_steps(dist::ProcessGroup& group, const Settings& settings, const Signals& signals) {
  std::vector<float> values(std::stoul(settings.at("floats")));
  std::vector<int32_t> stop(1);
  for (int step = 0; step < std::stoi(settings.at("steps")); ++step) {
    if (settings.contains("fails") && settings.at("fails") == fmt::format("{}:{}", group.rank(), step) &&
        is_first(settings)) {
      fail("the disk of rank {} is full", group.rank());
    }
    const std::string here = fmt::format("{}:{}:", group.rank(), step);
    if (settings.contains("sleeps") && settings.at("sleeps").starts_with(here)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(settings.at("sleeps").substr(here.size()))));
    }
    std::fill(values.begin(), values.end(), 1.0F);
    group.communicator().all_reduce(host_view(values.data(), 1, static_cast<int64_t>(values.size())));
    require(values.front() == static_cast<float>(group.size()), "the sum is {}", values.front());
    stop[0] = signals.stop_signal();
    group.communicator().all_reduce(host_view(stop.data(), 1, 1));
    if (stop[0] != 0) {
      group.leave();
      if (settings.contains("saves") && group.rank() == 0) {
        std::ofstream(settings.at("saves")) << step << "\n";
      }
      throw Interrupted(SIGTERM, fmt::format("stopped at step {}", step));
    }
    if (step == 0) {
      fmt::print("rank {} of {} works in process {}\n", group.rank(), group.size(), getpid());
      std::fflush(stdout);
    }
    for (int line = 0; line < std::stoi(settings.at("prints")); ++line) {
      fmt::print("step {} line {} {:>100}\n", step, line, "");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(settings.at("pause"))));
  }
}

void work(const Settings& settings) {
  const Signals signals(grace());
  const dist::World world = dist::world_from_environment();
  if (settings.contains("late") && settings.at("late").starts_with(fmt::format("{}:", world.rank))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(settings.at("late").substr(2))));
  }
  const auto group = dist::join_process_group(world, {});
  try {
    work_steps(*group, settings, signals);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    if (group->failure().empty()) {
      group->stop(error.what());
    }
    throw;
  }
  group->leave();
  fmt::print("rank {} is done\n", group->rank());
}

void launch_work(int argc, char** argv) {
  LaunchOptions options;
  options.hosts = parse_hosts(argv[2]);
  options.agent = argv[3];
  options.restarts = std::stoi(argv[4]);
  options.directory = argv[5];
  options.command.assign(argv + 6, argv + argc);
  options.binary = own_binary();
  options.grace = std::chrono::seconds(grace());
  launch(options);
}

void push_files(int argc, char** argv) {
  LaunchOptions options;
  options.hosts = parse_hosts(argv[2]);
  options.agent = argv[3];
  options.binary = own_binary();
  options.directory = argv[4];
  push(options, {argv + 5, argv + argc});
}

}  // namespace
}  // namespace tandem::launch

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "agent") {
      tandem::launch::run_agent(0, 1);
    } else if (command == "launch" && argc > 6) {
      tandem::launch::launch_work(argc, argv);
    } else if (command == "push" && argc > 4) {
      tandem::launch::push_files(argc, argv);
    } else if (command == "--version") {
      std::puts("test");
    } else {
      tandem::launch::work(tandem::launch::settings_of(argc, argv));
    }
    return 0;
  } catch (const tandem::Interrupted& interrupted) {
    std::fprintf(stderr, "tandem: %s\n", interrupted.what());
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem: %s\n", error.what());
    return 1;
  }
}
