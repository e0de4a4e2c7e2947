// Several workers train one model, as real processes: the same losses however many there are, the same bits sharded or
// not, and going on after every kind of stop.
#include "end_to_end/several_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/stopwatch.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 50;

class SeveralRanks : public ::testing::Test {
 protected:
  void SetUp() override { make_small_corpus(directory_); }

  std::vector<std::string> command(const std::string& name, int steps, std::vector<std::string> more = {}) const {
    more.emplace_back("log.every_steps=1");
    return train_arguments(directory_, name, steps, more);
  }
  Result expect_trains(int workers, const std::string& name, int steps, const std::vector<std::string>& more = {}) {
    const Result result = run(launch_arguments("localhost:" + std::to_string(workers), command(name, steps, more)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  void expect_same_losses(const std::string& one, const std::string& other, int first = 1) const {
    const double difference = loss_difference(directory_ / one, directory_ / other, first, kSteps);
    std::printf("%s against %s: losses differ by %.1e\n", other.c_str(), one.c_str(), difference);
    EXPECT_LT(difference, 1e-5) << other;
  }

  TemporaryDirectory directory_;
};

// Dropout 0.1, lengths of 2 to 7 words, relu, which makes the most of the least difference.
TEST_F(SeveralRanks, AnyNumberOfWorkersTrainsTheSameBits) {
  const std::vector<std::string> set{"optimizer.ema_decay=0.9", "schedule.learning_rate=0.003"};
  ASSERT_EQ(run(command("1", kSteps, set)).exit_code, 0);
  const auto losses = train_records(directory_ / "1", "loss");
  EXPECT_LT(losses.at(kSteps), 0.9 * losses.at(1)) << "it must learn";
  const auto expect_same = [this](const std::string& name) {
    expect_same_losses("1", name);
    EXPECT_EQ(saved_bits(directory_ / "1"), saved_bits(directory_ / name)) << name;
    EXPECT_EQ(read_text(directory_ / "1/latest/ema.safetensors"),
              read_text(directory_ / (name + "/latest/ema.safetensors")));
  };
  for (const int workers : {1, 2, 3, 4}) {
    const std::string name = std::to_string(workers) + "workers";
    const Result result = expect_trains(workers, name, kSteps, set);
    EXPECT_EQ(result.err.find(std::to_string(workers) + " workers, started by tandem launch") != std::string::npos,
              workers > 1);
    expect_same(name);
    std::vector<std::string> other = set;
    other.emplace_back(workers % 2 == 0 ? "dist.shard_optimizer=true" : "batch.micro_batch=80");
    expect_trains(workers, name + "other", kSteps, other);
    expect_same(name + "other");
  }
}

// Two hosts of two workers add up inside the hosts first, and a sharded optimizer's parts are then not in the order of
// the ranks: what is saved must be. Another number of workers goes on from it.
TEST_F(SeveralRanks, HostsOfSeveralWorkersTrainTheSameBits) {
  const std::string hosts = "localhost:2,127.0.0.1:2";
  const std::vector<std::string> set{"optimizer.ema_decay=0.9"}, sharded{set.front(), "dist.shard_optimizer=true"};
  ASSERT_EQ(run(command("1", kSteps, set)).exit_code, 0);
  for (const auto& [name, more] : {std::pair{"whole", set}, std::pair{"sharded", sharded}}) {
    for (const int steps : {20, 40}) {
      const Result result = run(launch_arguments(hosts, command(name, steps, more)));
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
    expect_trains(3, name, kSteps, set);
    expect_same_losses("1", name);
    EXPECT_TRUE(saved_bits(directory_ / "1") == saved_bits(directory_ / name)) << name;
  }
}

// Gradients are rounded where the workers add them.
TEST_F(SeveralRanks, InF32TheLossesAreTheSame) {
  const std::vector<std::string> set{"dist.wire=f32", "model.activation=gelu"};
  ASSERT_EQ(run(command("1", kSteps, set)).exit_code, 0);
  expect_trains(3, "3", kSteps, set);
  expect_same_losses("1", "3");
}

TEST_F(SeveralRanks, GoesOnWithAnotherNumberOfWorkers) {
  const std::vector<std::string> set{"checkpoint.every_steps=10"};
  ASSERT_EQ(run(command("whole", kSteps, set)).exit_code, 0);
  std::vector<std::string> sharded = set;
  sharded.emplace_back("dist.shard_optimizer=true");
  expect_trains(2, "moved", 13, sharded);
  const Result three = expect_trains(3, "moved", 30, set);
  EXPECT_NE(three.err.find("resuming from step 13"), std::string::npos) << three.err;
  expect_trains(2, "moved", 40, sharded);
  ASSERT_EQ(run(command("moved", kSteps, set)).exit_code, 0);
  expect_same_losses("whole", "moved");
  EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(directory_ / "moved"));
}

TEST_F(SeveralRanks, ResumesBitForBitAndStartsOver) {
  expect_trains(2, "whole", 30);
  expect_trains(2, "parts", 11);
  const Result on = expect_trains(2, "parts", 30);
  EXPECT_NE(on.err.find("resuming from step 11"), std::string::npos) << on.err;
  EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(directory_ / "parts"));
  const Result over = expect_trains(2, "parts", 30, {"--start-over"});
  EXPECT_EQ(over.err.find("resuming"), std::string::npos) << over.err;
  EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(directory_ / "parts"));
}

TEST_F(SeveralRanks, ASignalToTheLauncherSavesAndEnds) {
  constexpr int kMany = 400;
  expect_trains(2, "whole", kMany);
  const fs::path log = directory_ / "log";
  const pid_t launcher = start(launch_arguments("localhost:2", command("stopped", kMany)), log);
  ASSERT_TRUE(appears(log, "step 20/")) << read_text(log);
  kill(launcher, SIGTERM);
  EXPECT_EQ(wait_for(launcher), 128 + SIGTERM) << read_text(log);
  EXPECT_TRUE(fs::exists(directory_ / "stopped/latest/manifest.json")) << read_text(log);
  EXPECT_LT(train_records(directory_ / "stopped", "loss").rbegin()->first, kMany);
  const Result on = expect_trains(2, "stopped", kMany);
  EXPECT_NE(on.err.find("resuming from step"), std::string::npos) << on.err;
  EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(directory_ / "stopped"));
}

TEST_F(SeveralRanks, AStopIsAgreedInsideAValidation) {
  std::string source, target;
  for (int i = 0; i < 5000; ++i) {
    source += read_text(directory_ / "dev.en");
    target += read_text(directory_ / "dev.de");
  }
  write_text(directory_ / "long.en", source);
  write_text(directory_ / "long.de", target);
  ASSERT_EQ(run({"prepare", "--source", directory_.at("train.en"), "--target", directory_.at("train.de"),
                 "--valid-source", directory_.at("long.en"), "--valid-target", directory_.at("long.de"), "--vocab-size",
                 "80", "--out", directory_.at("long")})
                .exit_code,
            0);
  const fs::path log = directory_ / "log";
  const pid_t launcher =
      start(launch_arguments("localhost:2",
                             command("stopped", 400, {"data=" + directory_.at("long"), "validation.every_steps=20"})),
            log);
  ASSERT_TRUE(appears(log, "step 20/")) << read_text(log);
  usleep(200'000);
  const Stopwatch watch;
  kill(launcher, SIGTERM);
  EXPECT_EQ(wait_for(launcher), 128 + SIGTERM) << read_text(log);
  EXPECT_LT(watch.seconds(), 3) << read_text(log);
  EXPECT_NE(read_text(log).find("the validation at step 20 is skipped"), std::string::npos) << read_text(log);
  EXPECT_EQ(fs::read_symlink(directory_ / "stopped/latest").filename(), "step-00000020");
}

// Sends the signal to every process of a launch, `times` times; returns its exit code.
int stop_all(pid_t launcher, int number, int times = 1) {
  std::vector<pid_t> all = descendants(launcher);
  EXPECT_GE(all.size(), 3U) << "an agent and two workers";
  all.push_back(launcher);
  for (int i = 0; i < times; ++i) {
    for (const pid_t process : all) {
      kill(process, number);
    }
    usleep(2000);
  }
  return wait_for(launcher);
}

TEST_F(SeveralRanks, ASignalToEveryProcessSavesAndEnds) {
  const fs::path log = directory_ / "log";
  int saved = 0;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    for (const int times : {1, 20}) {
      const pid_t launcher =
          start(launch_arguments("localhost:2", command("run", 1000000, {"checkpoint.every_steps=0"})), log);
      ASSERT_TRUE(appears(log, fmt::format("step {}/", saved + 20))) << read_text(log);
      EXPECT_EQ(stop_all(launcher, number, times), 128 + number) << read_text(log);
      const std::string state = read_text(directory_ / "run/latest/state.json");
      const size_t at = state.find("\"step\":");
      ASSERT_NE(at, std::string::npos) << read_text(log);
      const int step = std::atoi(state.c_str() + at + 7);
      EXPECT_GT(step, saved + 19) << "the work since the checkpoint before is lost";
      saved = step;
    }
  }
}

TEST_F(SeveralRanks, UnderNohupAHangUpChangesNothing) {
  const fs::path log = directory_ / "log";
  signal(SIGHUP, SIG_IGN);
  const pid_t launcher = start(launch_arguments("localhost:2", command("run", 1000000)), log);
  signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(appears(log, "step 20/")) << read_text(log);
  for (const pid_t process : descendants(launcher)) {
    kill(process, SIGHUP);
  }
  kill(launcher, SIGHUP);
  usleep(500'000);
  int code = 0;
  ASSERT_FALSE(has_ended(launcher, code)) << read_text(log);
  EXPECT_EQ(stop_all(launcher, SIGTERM), 128 + SIGTERM) << read_text(log);
}

TEST_F(SeveralRanks, ASilentWorkerIsDeadWhenTheSettingSaysSo) {
  const fs::path log = directory_ / "log";
  const pid_t launcher =
      start(launch_arguments("localhost:2",
                             command("run", 1000000, {"dist.silence_seconds=1", "dist.heartbeat_seconds=0.2"})),
            log);
  ASSERT_TRUE(appears(log, "step 20/")) << read_text(log);
  for (const pid_t process : descendants(launcher)) {
    if (read_text(fmt::format("/proc/{}/environ", process)).find("TANDEM_RANK=1") != std::string::npos) {
      kill(process, SIGSTOP);
    }
  }
  EXPECT_EQ(wait_for(launcher), 1);
  EXPECT_NE(read_text(log).find("rank 1 on host localhost has been silent for 1 s"), std::string::npos)
      << read_text(log);
}

// The disk is full, as far as the workers can see: no file may grow beyond 1,000 bytes.
TEST_F(SeveralRanks, ASaveThatFailsIsAnError) {
  const fs::path log = directory_ / "log";
  const pid_t launcher = start(launch_arguments("localhost:2", command("run", 1000000)), log);
  ASSERT_TRUE(appears(log, "step 20/")) << read_text(log);
  const rlimit full{1000, 1000};
  for (const pid_t process : descendants(launcher)) {
    prlimit(process, RLIMIT_FSIZE, &full, nullptr);
  }
  EXPECT_EQ(stop_all(launcher, SIGTERM), 1) << read_text(log);
  EXPECT_FALSE(fs::exists(directory_ / "run/latest"));
}

// Two processes with the variables that another launcher sets.
TEST_F(SeveralRanks, OtherLaunchersVariablesStartAProcessGroupToo) {
  expect_trains(2, "launched", 20);
  using Variables = std::vector<std::string>;
  const std::string torchrun_port = "MASTER_PORT=" + std::to_string(20000 + getpid() % 10000);
  const std::map<std::string, std::function<Variables(const std::string& rank)>> launchers{
      {"torchrun",
       [&](const std::string& rank) {
         return Variables{"RANK=" + rank,       "LOCAL_RANK=" + rank,    "WORLD_SIZE=2",
                          "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", torchrun_port};
       }},
      {"mpirun", [&](const std::string& rank) {
         return Variables{"OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_SIZE=2",
                          "OMPI_COMM_WORLD_LOCAL_RANK=" + rank, "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                          "PMIX_NAMESPACE=" + directory_.path().filename().string()};
       }}};
  for (const auto& [name, variables] : launchers) {
    const auto log = [&](int rank) { return directory_ / (name + std::to_string(rank) + ".log"); };
    const auto with_key = [&](const std::string& rank) {
      Variables all = variables(rank);
      all.push_back("TMPDIR=" + directory_.path().string());
      return all;
    };
    const pid_t first = start(command(name, 20), log(0), with_key("0"));
    const pid_t second = start(command(name, 20), log(1), with_key("1"));
    EXPECT_EQ(wait_for(first), 0) << read_text(log(0));
    EXPECT_EQ(wait_for(second), 0) << read_text(log(1));
    EXPECT_NE(read_text(log(0)).find("2 workers, started by " + name), std::string::npos) << read_text(log(0));
    EXPECT_EQ(saved_bits(directory_ / "launched"), saved_bits(directory_ / name));
    EXPECT_FALSE(read_text(directory_ / fmt::format("tandem-{}/secret", geteuid())).empty()) << "no key of this user";

    Variables several = with_key("0");  // of four, two of them on another host: there is no secret to be derived
    for (std::string& entry : several) {
      entry = entry.ends_with("WORLD_SIZE=2") && !entry.starts_with("LOCAL") ? entry.substr(0, entry.size() - 1) + "4"
                                                                             : entry;
    }
    several.emplace_back("TANDEM_RENDEZVOUS=127.0.0.1:9");
    const pid_t refused = start(command(name, 20), log(2), several);
    EXPECT_EQ(wait_for(refused), 1);
    EXPECT_NE(read_text(log(2)).find("set TANDEM_SECRET to what `tandem secret` prints"), std::string::npos)
        << read_text(log(2));
  }
  const std::string printed = run({"secret"}).out;
  EXPECT_EQ(printed.find_first_not_of("0123456789abcdef"), 32U) << printed;
  EXPECT_NE(printed, run({"secret"}).out);
}

class SharedDisks : public SeveralRanks {
 protected:
  void SetUp() override {
    if (const std::string why = Hosts::unavailable(); !why.empty()) {
      GTEST_SKIP() << why;
    }
    SeveralRanks::SetUp();
    disks_ = std::make_unique<SeparateDisks>(directory_, "run", 3);
  }
  Result launch(const std::string& hosts, int steps, const std::vector<std::string>& more = {}) {
    Result result = run(launch_arguments(hosts, command("run", steps, more), {"--agent", disks_->agent()}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  fs::path disk(const std::string& host) const { return disks_->disk(host); }

  std::unique_ptr<SeparateDisks> disks_;
};

TEST_F(SharedDisks, EveryHostKeepsTheLatestCheckpoint) {
  expect_trains(3, "whole", kSteps);
  launch("a,b,c", 20);
  for (const std::string host : {"b", "c"}) {
    EXPECT_EQ(saved_bits(disk("a")), saved_bits(disk(host)));
    EXPECT_EQ(read_text(disk("a") / "latest/manifest.json"), read_text(disk(host) / "latest/manifest.json"));
  }
  EXPECT_TRUE(fs::is_empty(directory_ / "run")) << "nothing is written where no host has its disk";

  fs::remove_all(disk("a"));
  const Result on = launch("a,b,c", 35);
  EXPECT_NE(on.err.find("resuming from step 20"), std::string::npos) << on.err;
  EXPECT_EQ(saved_bits(disk("a")), saved_bits(disk("c")));

  fs::remove_all(disk("b"));
  fs::remove_all(disk("c"));
  launch("a,b,c", kSteps);
  for (const std::string host : {"a", "b", "c"}) {
    EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(disk(host)));
  }
}

// The moments of all ranks, although each keeps only its own and one host has no checkpoint.
TEST_F(SharedDisks, ShardedMomentsComeFromAnotherHost) {
  const std::vector<std::string> sharded{"dist.shard_optimizer=true", "optimizer.ema_decay=0.9"};
  expect_trains(3, "whole", 30, sharded);
  for (const std::string lost : {"a", "b"}) {
    for (const std::string host : {"a", "b", "c"}) {
      fs::remove_all(disk(host));
    }
    launch("a,b,c", 10, sharded);
    fs::remove_all(disk(lost));
    launch("a,b,c", 30, sharded);
    for (const std::string host : {"a", "b", "c"}) {
      EXPECT_EQ(saved_bits(directory_ / "whole"), saved_bits(disk(host))) << "without " << lost << ", " << host;
    }
  }
}

// Each host's workers have another number of threads, which is no matter of the run.
TEST_F(SharedDisks, HostsWithDifferentNumbersOfWorkersGoOn) {
  launch("a:2,b:1", 10);
  EXPECT_EQ(read_text(disk("a") / "latest/manifest.json"), read_text(disk("b") / "latest/manifest.json"));
  const Result on = launch("a:2,b:1", 20);
  EXPECT_NE(on.err.find("resuming from step 10"), std::string::npos) << on.err;
}

// Every rank has its own clock: what is due by the time is due for all or for none.
TEST_F(SeveralRanks, PausesByTheClockAreAgreed) {
  const Result result = expect_trains(3, "timed", 400,
                                      {"checkpoint.every_minutes=0.002", "validation.every_minutes=0.003",
                                       "validation.max_sentences=30", "log.every_steps=100"});
  EXPECT_NE(result.err.find("all 400 steps are done"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tandem::testing
