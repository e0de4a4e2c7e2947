// Workers on three hosts; one is killed, stopped or cut off, or rank 0 or the launcher dies, at random moments. Nothing
// hangs, no orphan is left, and every survivor names rank and host within 10 s.
#include <fmt/core.h>

#include <functional>
#include <random>

#include "dist/process_groups.h"
#include "launched.h"

namespace tandem::testing {
namespace {

int rounds() { return std::getenv("TANDEM_SOAK") != nullptr ? 20 : 2; }

// Runs round(0), round(1), ..., two at a time: they mostly wait.
void run_rounds(int count, const std::function<void(int round, PhiloxStream& random)>& round) {
  const auto seed = std::random_device{}();
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 2; ++lane) {
    threads.emplace_back([&, lane] {
      for (int i = lane; i < count; i += 2) {
        PhiloxStream random(seed, i);
        round(i, random);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class Faults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Hosts::unavailable().empty()) {
      hosts_ = std::make_unique<Hosts>(3);
    }
  }
  static void TearDownTestSuite() { hosts_.reset(); }

  void SetUp() override {
    if (!hosts_) {
      GTEST_SKIP() << Hosts::unavailable();
    }
  }

  // The fault: what is done to the workers (by rank) and the launcher.
  using Fault = std::function<void(const std::map<int, pid_t>& workers, pid_t launcher)>;

  // Each of the `survivors` must print `message`.
  static void check(PhiloxStream& random, const Fault& fault, const std::set<int>& survivors,
                    const std::string& message) {
    Launched launched(launch_arguments("a,b,c", hosts_->agent(), 0, {"steps=100000000", "floats=50000"}));
    const auto workers = launched.wait_for_workers(3);
    ASSERT_EQ(workers.size(), 3U);
    std::this_thread::sleep_for(milliseconds(random.below(700)));
    const auto began = steady_clock::now();
    fault(workers, launched.process());
    for (const int rank : survivors) {
      while (is_alive(workers.at(rank)) && steady_clock::now() - began < milliseconds(15000)) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      EXPECT_FALSE(is_alive(workers.at(rank))) << "rank " << rank;
    }
    EXPECT_LT(steady_clock::now() - began, milliseconds(10000));
    const int code = launched.wait(milliseconds(10000));
    EXPECT_TRUE(code > 0) << code;
    EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(5000)));
    for (const int rank : survivors) {
      const std::string prefix =
          rank == 0 ? "\ntandem: " : "\n[rank " + std::to_string(rank) + " on " + Hosts::name(rank) + "] tandem: ";
      EXPECT_TRUE(contains("\n" + launched.err(), prefix + message)) << prefix << message << "\n" << launched.err();
    }
  }

  static std::unique_ptr<Hosts> hosts_;
};

std::unique_ptr<Hosts> Faults::hosts_;

TEST_F(Faults, KilledWorker) {
  run_rounds(rounds(), [](int round, PhiloxStream& random) {
    const int lost = 1 + round % 2;
    check(
        random, [&](const auto& workers, pid_t) { kill(workers.at(lost), SIGKILL); }, {0, 3 - lost},
        fmt::format("rank {} on host {} is gone", lost, Hosts::name(lost)));
  });
}

TEST_F(Faults, KilledRank0) {
  run_rounds(rounds(), [](int, PhiloxStream& random) {
    check(
        random, [&](const auto& workers, pid_t) { kill(workers.at(0), SIGKILL); }, {1, 2}, "rank 0 on host a is gone");
  });
}

TEST_F(Faults, StoppedWorker) {
  run_rounds(rounds(), [](int round, PhiloxStream& random) {
    if (round % 2 == 0) {
      check(
          random, [&](const auto& workers, pid_t) { kill(workers.at(1), SIGSTOP); }, {0, 2},
          "rank 1 on host b has been silent for 3 s");
    } else {
      check(
          random, [&](const auto& workers, pid_t) { kill(workers.at(0), SIGSTOP); }, {1, 2}, "rank ");
    }
  });
}

TEST_F(Faults, CutLink) {
  PhiloxStream random(std::random_device{}(), 3);
  for (int round = 0; round < rounds(); ++round) {
    const int lost = 1 + round % 2;
    check(
        random, [&](const auto&, pid_t) { hosts_->cut(lost); }, {0, 3 - lost},
        fmt::format("rank {} on host {} has been silent for 3 s", lost, Hosts::name(lost)));
    hosts_->join(lost);
  }
}

TEST_F(Faults, KilledLauncher) {
  run_rounds(rounds(), [](int, PhiloxStream& random) {
    Launched launched(launch_arguments("a,b,c", hosts_->agent(), 0, {"steps=100000000", "floats=50000"}));
    const auto workers = launched.wait_for_workers(3);
    std::this_thread::sleep_for(milliseconds(random.below(700)));
    kill(launched.process(), SIGKILL);
    EXPECT_EQ(launched.wait(milliseconds(1000)), 128 + SIGKILL);
    EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(10000)));
  });
}

// A stopped launcher counts as gone.
void stop_launcher(const std::string& agent) {
  Launched launched(launch_arguments("a,b,c", agent, 0, {"steps=100000000", "floats=50000"}));
  const auto workers = launched.wait_for_workers(3);
  kill(launched.process(), SIGSTOP);
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(10000)));
  kill(launched.process(), SIGCONT);
  EXPECT_TRUE(launched.wait(milliseconds(5000)) > 0);
}

// A launcher that waits for the reader of its output does not: 20 MB of lines, read after 8 s.
void block_launcher(const std::string& agent) {
  std::string command;
  for (const std::string& word : launch_arguments("a,b", agent, 0, {"steps=20", "prints=4000"})) {
    command += " '" + word + "'";
  }
  const CommandResult result = run_command(command + " | (sleep 8; cat) | grep -c 'line 3999'");
  EXPECT_TRUE(contains(result.output, "40\n")) << result.output;
}

TEST_F(Faults, StoppedAndBlockedLauncher) {
  run_rounds(2, [](int round, PhiloxStream&) {
    round == 0 ? stop_launcher(hosts_->agent()) : block_launcher(hosts_->agent());
  });
}

TEST_F(Faults, KilledAgent) {
  Launched launched(launch_arguments("a,b:2", hosts_->agent(), 0, {"steps=100000000", "floats=50000"}));
  const auto workers = launched.wait_for_workers(3);
  std::string parent = read_text("/proc/" + std::to_string(workers.at(1)) + "/stat");
  const pid_t agent = std::atoi(parent.substr(parent.rfind(')') + 4).c_str());
  kill(agent, SIGKILL);
  EXPECT_EQ(launched.wait(milliseconds(10000)), 1);
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(2000)));
  EXPECT_TRUE(contains(launched.err(), "host b is lost: its agent ended")) << launched.err();
}

// A worker as `tandem launch` would start it, with its output in a file.
pid_t start_worker(const dist::World& world, const std::filesystem::path& output) {
  const pid_t process = fork();
  if (process != 0) {
    return process;
  }
  const auto set = [](const char* name, const auto& value) { setenv(name, fmt::format("{}", value).c_str(), 1); };
  set("TANDEM_RANK", world.rank);
  set("TANDEM_SIZE", world.size);
  set("TANDEM_LOCAL_RANK", world.local_rank);
  set("TANDEM_LOCAL_SIZE", world.local_size);
  set("TANDEM_NODE", world.node);
  set("TANDEM_NODES", world.nodes);
  set("TANDEM_HOST", "here");
  set("TANDEM_SECRET", world.secret);
  set("TANDEM_RENDEZVOUS", world.rendezvous);
  if (world.listener >= 0) {
    set("TANDEM_LISTENER", world.listener);
    fcntl(world.listener, F_SETFD, 0);
  }
  for (const int to : {1, 2}) {
    dup2(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), to);
  }
  execl(TANDEM_WORKER, TANDEM_WORKER, "work", "steps=100000000", nullptr);
  _exit(127);
}

// A worker that is stopped, taken for dead, and continued ends itself at once.
TEST_F(Faults, ContinuedWorkerEndsItself) {
  const std::vector<dist::World> worlds = make_local_worlds(2);
  const TemporaryDirectory directory;
  const pid_t first = start_worker(worlds[0], directory / "0");
  const pid_t second = start_worker(worlds[1], directory / "1");
  close(worlds[0].listener);
  const auto deadline = steady_clock::now() + milliseconds(30000);
  while (!contains(read_text(directory / "1"), "works in process") && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  kill(second, SIGSTOP);
  int status = 0;
  waitpid(first, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(is_alive(second));
  const auto began = steady_clock::now();
  kill(second, SIGCONT);
  waitpid(second, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_LT(steady_clock::now() - began, milliseconds(5000));
  EXPECT_TRUE(contains(read_text(directory / "0"), "rank 1 on host here has been silent"))
      << read_text(directory / "0");
  EXPECT_TRUE(contains(read_text(directory / "1"), "tandem: rank ")) << read_text(directory / "1");
}

}  // namespace
}  // namespace tandem::testing
