// Launching, output, failing, stopping and starting again, on this host and on namespaces.
#include "launch/launch.h"

#include <algorithm>

#include "core/error.h"
#include "launched.h"

namespace tandem::testing {
namespace {

TEST(LaunchHosts, Parse) {
  const auto hosts = launch::parse_hosts("a:2,b,10.0.0.7:3");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].workers, 2);
  EXPECT_EQ(hosts[1].workers, 1);
  EXPECT_EQ(hosts[2].name, "10.0.0.7");
  EXPECT_EQ(launch::count_workers(hosts), 6);
  for (const char* bad : {"", ",", "a,", "a:0", "a:x", "a:-1", ":2", "a,a", "a:1,a:1", "-oProxyCommand=x", "a:9999"}) {
    EXPECT_THROW(launch::parse_hosts(bad), Error) << bad;
  }
  EXPECT_TRUE(launch::is_this_host("localhost"));
  EXPECT_FALSE(launch::is_this_host("a-host-of-another-name"));
}

TEST(LaunchHosts, CommandsAreTakenApartAsByAShell) {
  EXPECT_EQ(launch::split_command("ssh  -p 4444"), (std::vector<std::string>{"ssh", "-p", "4444"}));
  EXPECT_EQ(launch::split_command(R"(a 'b c' "d 'e" f\ g '')"),
            (std::vector<std::string>{"a", "b c", "d 'e", "f g", ""}));
  EXPECT_THROW(launch::split_command("a 'b"), Error);
  EXPECT_EQ(launch::split_command(launch::shell_quoted("it's; $x")), std::vector<std::string>{"it's; $x"});
}

std::vector<std::string> local(int workers, const std::vector<std::string>& work, int restarts = 0) {
  return launch_arguments(fmt::format("localhost:{}", workers), "false", restarts, work);
}

TEST(Launch, KeepsTheStreamsApart) {
  Launched launched(local(3, {"steps=5"}));
  EXPECT_EQ(launched.wait(milliseconds(20000)), 0) << launched.all();
  EXPECT_TRUE(contains("\n" + launched.out(), "\nrank 0 is done\n")) << launched.out();
  EXPECT_TRUE(contains(launched.out(), "[rank 1 on localhost] rank 1 is done\n")) << launched.out();
  EXPECT_TRUE(contains(launched.out(), "[rank 2 on localhost] rank 2 is done\n")) << launched.out();
  EXPECT_EQ(launched.err(), "3 workers, started by tandem launch: localhost (127.0.0.1 on lo)\n");
  EXPECT_TRUE(launched.processes().empty());
}

TEST(Launch, TheFirstCauseIsTheLastLine) {
  Launched launched(local(3, {"fails=2:3"}));
  EXPECT_EQ(launched.wait(milliseconds(20000)), 1);
  EXPECT_TRUE(
      launched.err().ends_with("\ntandem: rank 2 on host localhost exited with code 1: the disk of rank 2 is full\n"))
      << launched.err();
  EXPECT_TRUE(contains(launched.err(), "\ntandem: rank 2 on host localhost: the disk of rank 2 is full\n"));
  EXPECT_TRUE(contains(launched.err(), "[rank 1 on localhost] tandem: rank 2 on host localhost: the disk of rank 2"));
  EXPECT_TRUE(launched.processes().empty());
}

TEST(Launch, ControlCSavesAndEnds) {
  for (const int number : {SIGINT, SIGTERM}) {
    const TemporaryDirectory directory;
    Launched launched(local(3, {"steps=100000000", "saves=" + (directory / "saved").string()}));
    launched.wait_for_workers(3);
    kill(launched.process(), number);
    EXPECT_EQ(launched.wait(milliseconds(10000)), 128 + number) << launched.err();
    EXPECT_NE(read_text(directory / "saved"), "");
    EXPECT_TRUE(contains(launched.err(), "all workers have ended")) << launched.err();
    EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(1000)));
  }
}

// Rank 1 never ends by itself. The second signal changes nothing; when the grace is over, all end, and it is an error.
TEST(Launch, WorkersThatDoNotSaveEndAfterTheGrace) {
  setenv("TANDEM_TEST_GRACE", "3", 1);
  Launched launched(local(2, {"steps=100", "sleeps=1:1:600000"}));
  unsetenv("TANDEM_TEST_GRACE");
  launched.wait_for_workers(2);
  std::this_thread::sleep_for(milliseconds(300));
  kill(launched.process(), SIGINT);
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(launched.processes().size(), 3U) << "two workers that save, and their agent";
  kill(launched.process(), SIGINT);
  EXPECT_EQ(launched.wait(milliseconds(1500)), -1) << "ended within the grace: " << launched.err();
  EXPECT_EQ(launched.wait(milliseconds(8000)), 1) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "tandem: 3 s after the signal to stop")) << launched.err();
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(1000)));
}

// A worker that even the signal does not reach is killed a little later.
TEST(Launch, AStoppedWorkerIsKilledAfterTheGrace) {
  setenv("TANDEM_TEST_GRACE", "1", 1);
  Launched launched(local(1, {"steps=100000000", "pause=1"}));
  unsetenv("TANDEM_TEST_GRACE");
  const auto workers = launched.wait_for_workers(1);
  kill(workers.at(0), SIGSTOP);
  kill(launched.process(), SIGTERM);
  EXPECT_EQ(launched.wait(milliseconds(8000)), 1) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "rank 0 on host localhost was killed")) << launched.err();
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(1000)));
}

// The workers save, however the signal reaches them; `agent`: for another host.
void signal_every_process(const std::string& hosts, const std::string& agent, int number) {
  const TemporaryDirectory directory;
  Launched launched(launch_arguments(hosts, agent, 0, {"steps=100000000", "saves=" + (directory / "saved").string()}));
  launched.wait_for_workers(2);
  for (const pid_t process : launched.processes()) {
    kill(process, number);
  }
  kill(launched.process(), number);
  EXPECT_EQ(launched.wait(milliseconds(10000)), 128 + number) << launched.err();
  EXPECT_NE(read_text(directory / "saved"), "") << launched.err();
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(1000)));
}

TEST(Launch, ASignalToEveryProcessSavesAndEnds) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    signal_every_process("localhost:2", "false", number);
    signal_every_process("x,y", R"(sh -c 'eval "$1"')", number);  // another process is between launcher and agent
  }
}

// The launcher is gone: its workers have the grace, here 3 s beside the 2 in which they end themselves.
TEST(Launch, WithoutALauncherWorkersHaveTheGrace) {
  setenv("TANDEM_TEST_GRACE", "3", 1);
  Launched launched(local(2, {"steps=100", "sleeps=1:1:600000"}));
  unsetenv("TANDEM_TEST_GRACE");
  launched.wait_for_workers(2);
  std::this_thread::sleep_for(milliseconds(300));
  kill(launched.process(), SIGKILL);
  EXPECT_FALSE(launched.wait_until_nothing_is_left(milliseconds(2500)));
  EXPECT_TRUE(launched.wait_until_nothing_is_left(milliseconds(8000)));
}

TEST(Launch, StartsAgain) {
  const TemporaryDirectory directory;
  Launched launched(local(2, {"steps=20", "fails=1:3", "first=" + (directory / "once").string()}, 2));
  EXPECT_EQ(launched.wait(milliseconds(30000)), 0) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "the disk of rank 1 is full; restart 1 of 2 with 2 workers on 1 hosts"))
      << launched.err();
  EXPECT_FALSE(contains(launched.err(), "restart 2"));
  EXPECT_TRUE(contains(launched.out(), "rank 0 is done"));
}

TEST(Launch, GivesUpAfterTheLastRestart) {
  Launched launched(local(2, {"fails=1:3"}, 1));
  EXPECT_EQ(launched.wait(milliseconds(30000)), 1);
  EXPECT_TRUE(
      launched.err().ends_with("tandem: rank 1 on host localhost exited with code 1: the disk of rank 1 is full\n"))
      << launched.err();
}

TEST(Launch, AHostThatCannotBeReachedIsNamed) {
  Launched launched(launch_arguments("localhost,nowhere", "sh -c 'echo no route to $0 >&2; exit 255'", 0, {}));
  EXPECT_EQ(launched.wait(milliseconds(20000)), 1);
  EXPECT_TRUE(contains(launched.err(), "[host nowhere] no route to nowhere\n")) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "tandem: host nowhere cannot be used: no route to nowhere (ssh must"))
      << launched.err();
  EXPECT_TRUE(launched.processes().empty());
}

TEST(Launch, LoginsThatPrintDoNoHarm) {
  Launched launched(
      launch_arguments("x,y", R"(sh -c 'echo welcome to $0; head -c 3000 /dev/zero; eval "$1"')", 0, {"steps=3"}));
  EXPECT_EQ(launched.wait(milliseconds(20000)), 0) << launched.all();
  EXPECT_TRUE(contains(launched.out(), "[rank 1 on y] rank 1 is done"));
}

TEST(Launch, AMissingDirectoryIsNamed) {
  auto arguments = local(1, {});
  arguments[5] = "/no/such/directory";
  Launched launched(arguments);
  EXPECT_EQ(launched.wait(milliseconds(20000)), 1);
  EXPECT_TRUE(contains(launched.err(), "cannot start in directory /no/such/directory: No such file")) << launched.err();
}

// Other launchers: two processes of this host with the variables that mpirun, srun and torchrun set.
TEST(Launch, UnderOtherLaunchers) {
  const std::string job = std::to_string(getpid());
  const auto variables_for = [&](int rank) -> std::vector<std::string> {
    const std::string mpirun =
        "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK={0} "
        "OMPI_COMM_WORLD_LOCAL_RANK={0} OMPI_MCA_ess_base_jobid={1}";
    const std::string srun =
        "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2 "
        "SLURM_STEP_ID=0 SLURM_PROCID={0} SLURM_LOCALID={0} SLURM_JOB_ID={1}";
    const std::string torchrun =
        "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 RANK={0} LOCAL_RANK={0} MASTER_ADDR=localhost "
        "MASTER_PORT={2} TORCHELASTIC_RUN_ID={1}";
    const int port = 31000 + getpid() % 1000;
    std::vector<std::string> commands;
    for (const std::string& each : {mpirun, srun, torchrun}) {
      commands.push_back(fmt::format(fmt::runtime(each), rank, job, port));
    }
    return commands;
  };
  for (size_t launcher = 0; launcher < 3; ++launcher) {
    std::string commands;
    for (const int rank : {0, 1}) {
      commands += fmt::format("env {} {} work steps=3 & ", variables_for(rank)[launcher], TANDEM_WORKER);
    }
    const CommandResult result = run_command(commands + "wait");
    EXPECT_TRUE(contains(result.output, "rank 0 is done") && contains(result.output, "rank 1 is done"))
        << result.output;
  }
}

class LaunchOnHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Hosts::unavailable().empty()) {
      GTEST_SKIP() << Hosts::unavailable();
    }
  }
};

TEST_F(LaunchOnHosts, AllPairsMeetOverTheirInterface) {
  const Hosts hosts(2);
  Launched launched(launch_arguments("a:2,b:2", hosts.agent(), 0, {"steps=20"}));
  EXPECT_EQ(launched.wait(milliseconds(30000)), 0) << launched.all();
  EXPECT_TRUE(
      contains(launched.err(), "4 workers, started by tandem launch: a (10.77.0.1 on eth0), b (10.77.0.2 on eth0)"))
      << launched.err();
}

TEST_F(LaunchOnHosts, StartsAgainWithoutALostHost) {
  const Hosts hosts(3);
  const TemporaryDirectory directory;
  const std::string gone = (directory / "gone").string();
  const std::string agent = (directory / "agent").string();
  std::ofstream(agent) << "#!/bin/sh\n[ $1 = c ] && [ -e " << gone << " ] && { echo no route; exit 255; }\nexec "
                       << hosts.agent() << " \"$@\"\n";
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  Launched launched(launch_arguments("a,b,c", agent, 2, {"steps=100", "pause=10"}));
  const auto workers = launched.wait_for_workers(3);
  std::ofstream{gone};
  kill(workers.at(2), SIGKILL);
  EXPECT_EQ(launched.wait(milliseconds(40000)), 0) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "host c no longer answers and is left out")) << launched.err();
  EXPECT_TRUE(contains(launched.out(), "rank 0 of 2 works")) << launched.out();
}

// One all-reduce that takes longer than the silence limit, on a link that it fills.
TEST_F(LaunchOnHosts, ALongCollectiveIsNoDeath) {
  const Hosts hosts(2, "20mbit");
  const auto began = steady_clock::now();
  Launched launched(launch_arguments("a,b", hosts.agent(), 0, {"steps=1", "floats=5000000"}));
  EXPECT_EQ(launched.wait(milliseconds(60000)), 0) << launched.all();
  EXPECT_GT(steady_clock::now() - began, milliseconds(7000));
}

// Starts an sshd on each host; returns the agent command that reaches them from the desk.
std::string start_sshd(const Hosts& hosts, int count, const std::string& keys) {
  EXPECT_EQ(run_command("ssh-keygen -q -t ed25519 -N '' -f " + keys + "/host && ssh-keygen -q -t ed25519 -N '' -f " +
                        keys + "/user && cp " + keys + "/user.pub " + keys + "/authorized && mkdir -p /run/sshd")
                .code,
            0);
  for (int i = 0; i < count; ++i) {
    const auto started = run_command(
        hosts.in_host(i, "$(command -v sshd) -f /dev/null -h " + keys + "/host -o AuthorizedKeysFile=" + keys +
                             "/authorized -o StrictModes=no -o PidFile=none -o UsePAM=no -p 4444"));
    EXPECT_EQ(started.code, 0) << started.output;
  }
  return hosts.in_desk("ssh -p 4444 -i " + keys +
                       "/user -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no -o LogLevel=ERROR "
                       "-o UserKnownHostsFile=/dev/null");
}

void expect_gone_in_time(const std::map<int, pid_t>& workers) {
  const auto began = steady_clock::now();
  const auto any_alive = [&] {
    return std::any_of(workers.begin(), workers.end(), [](const auto& worker) { return is_alive(worker.second); });
  };
  while (any_alive() && steady_clock::now() - began < milliseconds(15000)) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_LT(steady_clock::now() - began, milliseconds(10000));
}

TEST_F(LaunchOnHosts, OverRealSsh) {
  if (run_command("command -v sshd && command -v ssh-keygen").code != 0) {
    GTEST_SKIP() << "no sshd here: install openssh-server";
  }
  const Hosts hosts(2);
  const TemporaryDirectory directory;
  const std::string agent = start_sshd(hosts, 2, directory.path().string());
  const std::string names = Hosts::address(0) + ":2," + Hosts::address(1);
  {
    Launched launched(launch_arguments(names, agent, 0, {"steps=10"}));
    EXPECT_EQ(launched.wait(milliseconds(30000)), 0) << launched.all();
    EXPECT_TRUE(contains(launched.out(), "[rank 2 on 10.77.0.2] rank 2 is done")) << launched.out();
  }
  {
    Launched launched(launch_arguments(names, agent, 0, {"steps=100000000"}));
    const auto workers = launched.wait_for_workers(3);
    kill(launched.process(), SIGKILL);
    expect_gone_in_time(workers);
  }
  if (std::getenv("TANDEM_SOAK") != nullptr) {  // half a minute: the host is cut off from the launcher too
    Launched launched(launch_arguments(names, agent, 3, {"steps=1000", "pause=3"}));
    const auto workers = launched.wait_for_workers(3);
    hosts.cut(1);
    expect_gone_in_time(workers);
    EXPECT_EQ(launched.wait(milliseconds(90000)), 0) << launched.all();
    EXPECT_TRUE(contains(launched.err(), "host 10.77.0.2 no longer answers and is left out")) << launched.err();
    EXPECT_TRUE(contains(launched.out(), "rank 0 of 2 works")) << launched.out();
  }
}

}  // namespace
}  // namespace tandem::testing
