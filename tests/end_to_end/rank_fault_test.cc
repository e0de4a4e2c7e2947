// A training run on three hosts, each with a disk of its own, at random moments: a worker or the launcher is killed, or
// a host is lost. With the same workers the weights end as the same bits as without; with fewer, the losses stay.
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "core/philox.h"
#include "end_to_end/several_ranks.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 160;
constexpr int kInterval = 20;
const char* const kHosts = "a,b,c";

int rounds() { return std::getenv("TANDEM_SOAK") != nullptr ? 20 : 2; }

class RankFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Hosts::unavailable(); !why.empty()) {
      GTEST_SKIP() << why;
    }
    make_small_corpus(directory_);
    disks_ = std::make_unique<SeparateDisks>(directory_, "run", 3);
    const Result quiet = run(launch_arguments("localhost:3", command("quiet")));
    ASSERT_EQ(quiet.exit_code, 0) << quiet.err;
  }

  std::vector<std::string> command(const std::string& name) const {
    return train_arguments(directory_, name, kSteps,
                           {"log.every_steps=1", "model.activation=gelu", "checkpoint.keep_last=2",
                            "checkpoint.every_steps=" + std::to_string(kInterval)});
  }
  std::vector<std::string> launch(int restarts) const {
    std::vector<std::string> train = command("run");
    train.insert(train.end(), more_.begin(), more_.end());
    return launch_arguments(kHosts, train, {"--agent", disks_->agent(), "--restarts", std::to_string(restarts)});
  }
  fs::path disk(int host) const { return disks_->disk(Hosts::name(host)); }

  // Starts anew, waits for a checkpoint and a random moment, and lets it happen.
  pid_t start_and_disturb(int round, int restarts, const std::function<void(pid_t launcher)>& disturb) {
    for (int host = 0; host < 3; ++host) {
      fs::remove_all(disk(host));
    }
    log_ = directory_ / ("log" + std::to_string(round));
    fs::remove(log_);
    const pid_t launcher = start(launch(restarts), log_);
    for (int i = 0; i < 6000 && !fs::exists(disk(0) / "latest"); ++i) {
      usleep(5000);
    }
    EXPECT_TRUE(fs::exists(disk(0) / "latest")) << read_text(log_);
    usleep(static_cast<useconds_t>(random_.below(300000)));
    int code = 0;
    EXPECT_FALSE(has_ended(launcher, code)) << read_text(log_);
    disturb(launcher);
    return launcher;
  }

  // Processes of that host, agent and worker.
  std::vector<pid_t> processes(int host) const {
    std::vector<pid_t> found;
    const std::string output = run_command("ip netns pids " + disks_->hosts().space(host)).output;
    std::istringstream lines(output);
    for (pid_t process = 0; lines >> process;) {
      found.push_back(process);
    }
    return found;
  }
  pid_t worker(int host) const {
    for (const pid_t process : processes(host)) {
      const std::string line = read_text("/proc/" + std::to_string(process) + "/cmdline");
      if (line.find(std::string("tandem") + '\0' + "train") != std::string::npos) {
        return process;
      }
    }
    ADD_FAILURE() << "host " << host << " has no worker";
    return -1;
  }
  bool nothing_left() const {
    for (int i = 0; i < 1000; ++i) {
      if (processes(0).empty() && processes(1).empty() && processes(2).empty()) {
        return true;
      }
      usleep(10000);
    }
    return false;
  }
  void expect_the_same_bits() const {
    for (int host = 0; host < 3; ++host) {
      EXPECT_EQ(saved_bits(directory_ / "quiet"), saved_bits(disk(host))) << "host " << host;
    }
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SeparateDisks> disks_;
  fs::path log_;
  std::vector<std::string> more_;  // arguments of train
  PhiloxStream random_{std::random_device{}(), 1};
};

TEST_F(RankFaults, AKilledWorkerAndARestart) {
  for (int round = 0; round < rounds(); ++round) {
    const int lost = round % 3;
    const pid_t launcher = start_and_disturb(round, 1, [&](pid_t) { kill(worker(lost), SIGKILL); });
    EXPECT_EQ(wait_for(launcher), 0) << read_text(log_);
    EXPECT_NE(read_text(log_).find("restart 1 of 1 with 3 workers on 3 hosts"), std::string::npos) << read_text(log_);
    EXPECT_TRUE(nothing_left());
    expect_the_same_bits();
  }
}

TEST_F(RankFaults, ARestartDoesNotStartOverAgain) {
  more_ = {"--start-over"};
  const pid_t launcher = start_and_disturb(0, 1, [&](pid_t) { kill(worker(1), SIGKILL); });
  EXPECT_EQ(wait_for(launcher), 0) << read_text(log_);
  EXPECT_NE(read_text(log_).find("resuming from step"), std::string::npos) << read_text(log_);
  expect_the_same_bits();
  // The next launch is another one.
  const Result anew = run(launch(0));
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_EQ(anew.err.find("resuming from step"), std::string::npos) << anew.err;
}

TEST_F(RankFaults, AKilledLauncherAndTheNextLaunch) {
  for (int round = 0; round < rounds(); ++round) {
    const pid_t launcher = start_and_disturb(round, 0, [&](pid_t process) { kill(process, SIGKILL); });
    EXPECT_EQ(wait_for(launcher), 128 + SIGKILL);
    EXPECT_TRUE(nothing_left()) << "workers outlive their launcher by more than 10 s";
    const Result on = run(launch(0));
    EXPECT_EQ(on.exit_code, 0) << on.err;
    EXPECT_NE(on.err.find("resuming from step"), std::string::npos) << on.err;
    expect_the_same_bits();
  }
}

TEST_F(RankFaults, ALostHostIsLeftOut) {
  for (int round = 0; round < rounds(); ++round) {
    const int lost = round % 3;
    const pid_t launcher = start_and_disturb(round, 1, [&](pid_t) {
      for (const pid_t process : processes(lost)) {
        kill(process, SIGKILL);
      }
    });
    EXPECT_EQ(wait_for(launcher), 0) << read_text(log_);
    const std::string text = read_text(log_);
    EXPECT_NE(text.find("host " + Hosts::name(lost) + " no longer answers and is left out"), std::string::npos) << text;
    EXPECT_NE(text.find("with 2 workers on 2 hosts"), std::string::npos) << text;
    const fs::path first = disk(lost == 0 ? 1 : 0);  // of the hosts that are left
    const auto losses = train_records(first, "loss");
    ASSERT_FALSE(losses.empty()) << text;
    EXPECT_LE(losses.begin()->first, lost == 0 ? kSteps - 1 : 1);
    EXPECT_EQ(losses.rbegin()->first, kSteps);
    const double difference = loss_difference(directory_ / "quiet", first, losses.begin()->first, kSteps);
    std::printf("without host %d: losses from step %d on differ by %.1e\n", lost, losses.begin()->first, difference);
    EXPECT_LT(difference, 1e-5);
  }
}

}  // namespace
}  // namespace tandem::testing
