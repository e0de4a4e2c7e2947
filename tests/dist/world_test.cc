// Ranks read from the environment of tandem launch, mpirun, srun and torchrun.
#include "dist/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/error.h"
#include "temporary_directory.h"

namespace tandem::dist {
namespace {

const std::string kSecret = "0123456789abcdef012345";  // 22 characters

using Variables = std::map<std::string, std::string>;

class Environment {
 public:
  explicit Environment(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) {
      unsetenv(name.c_str());
    }
  }

 private:
  Variables variables_;
};

World world_in(const Variables& variables) {
  const Environment environment(variables);
  return world_from_environment();
}

std::string error_in(const Variables& variables) {
  return testing::message_of([&] { world_in(variables); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Variables kTandem = {{"TANDEM_RANK", "3"},       {"TANDEM_SIZE", "4"},       {"TANDEM_LOCAL_RANK", "1"},
                           {"TANDEM_LOCAL_SIZE", "2"}, {"TANDEM_NODE", "1"},       {"TANDEM_NODES", "2"},
                           {"TANDEM_HOST", "b"},       {"TANDEM_SECRET", kSecret}, {"TANDEM_RENDEZVOUS", "a:5000"},
                           {"TANDEM_HOSTS", "a,a,b,b"}};
const Variables kTorchrun = {
    {"RANK", "2"},       {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "0"},      {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "gpu1"}, {"MASTER_PORT", "29500"}, {"TANDEM_SECRET", kSecret}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"OMPI_MCA_orte_hnp_uri", "2051.0;tcp://10.0.0.1,192.168.0.1:41234"},
                           {"OMPI_MCA_ess_base_jobid", "2051"},
                           {"TANDEM_SECRET", kSecret}};
const Variables kSrun = {{"SLURM_PROCID", "4"},
                         {"SLURM_STEP_NUM_TASKS", "5"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_STEP_NODELIST", "gpu[07-09]"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_ID", "77"},
                         {"TANDEM_SECRET", kSecret}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(World, AloneWithoutVariables) {
  const World world = world_in({});
  EXPECT_TRUE(world.alone());
  EXPECT_EQ(world.started_by, "alone");
  EXPECT_FALSE(world.host.empty());
}

TEST(World, FromTandemLaunch) {
  const World world = world_in(with(kTandem, kSrun));
  EXPECT_EQ(world.started_by, "tandem launch");
  EXPECT_EQ(std::vector({world.rank, world.size, world.local_rank, world.local_size, world.node, world.nodes}),
            std::vector({3, 4, 1, 2, 1, 2}));
  EXPECT_EQ(world.host, "b");
  EXPECT_EQ(world.secret, kSecret);
  EXPECT_EQ(world.rendezvous, "a:5000");
  EXPECT_EQ(world.hosts, (std::vector<std::string>{"a", "a", "b", "b"}));
}

TEST(World, FromTorchrun) {
  World world = world_in(kTorchrun);
  EXPECT_EQ(world.started_by, "torchrun");
  EXPECT_EQ(std::vector({world.rank, world.size, world.local_rank, world.local_size, world.node, world.nodes}),
            std::vector({2, 4, 0, 2, 1, 2}));
  EXPECT_EQ(world.rendezvous, "gpu1:29500");
  world = world_in(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}}));
  EXPECT_EQ(world.rendezvous, "gpu1:29501");  // torchrun's own store has the port
}

TEST(World, FromMpirun) {
  World world = world_in(kMpirun);
  EXPECT_EQ(world.started_by, "mpirun");
  EXPECT_EQ(std::vector({world.rank, world.size, world.local_rank, world.local_size, world.node, world.nodes}),
            std::vector({5, 8, 1, 4, 1, 2}));
  EXPECT_TRUE(world.rendezvous.starts_with("10.0.0.1,192.168.0.1:2")) << world.rendezvous;
  world = world_in(with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}}));
  EXPECT_TRUE(world.rendezvous.starts_with("127.0.0.1:2")) << world.rendezvous;
  EXPECT_EQ(world_in(with(kMpirun, {{"TANDEM_RENDEZVOUS", "x:9"}})).rendezvous, "x:9");
  EXPECT_TRUE(contains(error_in(without(kMpirun, "OMPI_MCA_orte_hnp_uri")), "set TANDEM_RENDEZVOUS=host:port"));
}

TEST(World, FromSrun) {
  World world = world_in(kSrun);
  EXPECT_EQ(world.started_by, "srun");
  EXPECT_EQ(std::vector({world.rank, world.size, world.local_rank, world.local_size, world.node, world.nodes}),
            std::vector({4, 5, 0, 1, 2, 3}));
  EXPECT_TRUE(world.rendezvous.starts_with("gpu07:2")) << world.rendezvous;
  // Another rank of the job gets the same address; another job does not.
  EXPECT_EQ(world_in(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).rendezvous, world.rendezvous);
  EXPECT_NE(world_in(with(kSrun, {{"SLURM_JOB_ID", "78"}})).rendezvous, world.rendezvous);
  // The script of a batch job is not one of its tasks.
  EXPECT_TRUE(world_in(with(kSrun, {{"SLURM_STEP_ID", "4294967291"}})).alone());
  EXPECT_TRUE(world_in(without(kSrun, "SLURM_STEP_NUM_TASKS")).alone());
}

// Whatever other users can know of a job gives no secret.
TEST(World, SeveralHostsNeedASecret) {
  for (const Variables& launcher :
       {kTandem, kTorchrun, with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}), kMpirun, kSrun}) {
    EXPECT_EQ(world_in(launcher).secret, kSecret);
    const std::string error = error_in(without(launcher, "TANDEM_SECRET"));
    EXPECT_TRUE(contains(error, "set TANDEM_SECRET to what `tandem secret` prints, or TANDEM_SECRET_FILE")) << error;
    EXPECT_TRUE(contains(error_in(with(launcher, {{"TANDEM_SECRET", kSecret.substr(1)}})),
                         "has 21 characters, and must have at least 22"));
  }
}

TEST(World, ASecretInAFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory / "secret";
  const Variables from_file = with(without(kSrun, "TANDEM_SECRET"), {{"TANDEM_SECRET_FILE", path.string()}});
  EXPECT_TRUE(contains(error_in(from_file), "cannot be read: No such file"));
  std::ofstream(path) << kSecret << "\n";
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  EXPECT_TRUE(contains(error_in(from_file), "others may read the secret's file")) << error_in(from_file);
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_EQ(world_in(from_file).secret, kSecret);
  std::ofstream(path) << "short\n";
  EXPECT_TRUE(contains(error_in(from_file), "has 5 characters"));
}

TEST(World, OnOneHostTheSecretIsTheUsersOwn) {
  const testing::TemporaryDirectory directory;
  const testing::TemporaryDirectory other;
  const auto secret_in = [](const testing::TemporaryDirectory& temporary, const std::string& rank,
                            const std::string& id) {
    return world_in({{"RANK", rank},
                     {"LOCAL_RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", "29500"},
                     {"TORCHELASTIC_RUN_ID", id},
                     {"TMPDIR", temporary.path().string()}})
        .secret;
  };
  const std::string secret = secret_in(directory, "0", "");
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_EQ(secret_in(directory, "1", ""), secret);
  EXPECT_NE(secret_in(directory, "0", "another job"), secret);
  EXPECT_NE(secret_in(other, "0", ""), secret) << "it follows from what everybody knows";
  const auto kept = directory / fmt::format("tandem-{}", geteuid());
  EXPECT_EQ(std::filesystem::status(kept / "secret").permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(std::filesystem::status(kept).permissions(), std::filesystem::perms(0700));
  std::filesystem::permissions(kept, std::filesystem::perms(0755));
  EXPECT_TRUE(
      contains(testing::message_of([&] { secret_in(directory, "0", ""); }), "is not a directory that only you"));
}

TEST(World, HalfSetOrContradictoryIsAnError) {
  EXPECT_TRUE(contains(error_in(without(kTorchrun, "WORLD_SIZE")), "WORLD_SIZE is not set"));
  EXPECT_TRUE(contains(error_in(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR is not set"));
  EXPECT_TRUE(contains(error_in(without(kMpirun, "OMPI_COMM_WORLD_LOCAL_RANK")), "OMPI_COMM_WORLD_LOCAL_RANK is not"));
  EXPECT_TRUE(contains(error_in(without(kTandem, "TANDEM_SIZE")), "TANDEM_SIZE is not set"));
  EXPECT_TRUE(contains(error_in(with(kTorchrun, {{"RANK", "two"}})), "RANK is 'two', not a whole number"));
  EXPECT_TRUE(contains(error_in(with(kTorchrun, {{"RANK", "4"}})), "torchrun gives rank 4 of 4"));
  EXPECT_TRUE(contains(error_in(with(kTandem, {{"TANDEM_LOCAL_RANK", "2"}})), "gives local rank 2 of 2"));
  EXPECT_TRUE(contains(error_in(with(kTorchrun, kMpirun)), "variables give rank 2 of 4, mpirun's rank 5 of 8"));
  EXPECT_TRUE(contains(error_in(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})), "malformed"));
  EXPECT_TRUE(contains(error_in(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2"}})), "has 1 nodes"));
  EXPECT_TRUE(
      contains(error_in(with(kTandem, {{"TANDEM_RENDEZVOUS", "nowhere"}})), "'nowhere' is not an address to meet at"));
  EXPECT_TRUE(contains(error_in(with(kTandem, {{"TANDEM_LISTENER", "987"}})), "TANDEM_LISTENER is 987"));
}

TEST(World, SlurmLists) {
  EXPECT_EQ(first_slurm_host("gpu[03-06,9],login"), "gpu03");
  EXPECT_EQ(first_slurm_host("a,b[1-2]"), "a");
  EXPECT_EQ(first_slurm_host("a"), "a");
  EXPECT_EQ(first_slurm_host("n[5]-ib,c"), "n5-ib");
  EXPECT_THROW(first_slurm_host("n[5"), Error);
  EXPECT_EQ(slurm_tasks("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_THROW(slurm_tasks("2(x999999999)"), Error);
  EXPECT_THROW(slurm_tasks("x"), Error);
}

}  // namespace
}  // namespace tandem::dist
