#include "dist/world.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/lock.h"
#include "dist/authentication.h"
#include "dist/environment.h"
#include "dist/socket.h"

namespace tandem {
namespace {

constexpr int kFirstPort = 20000;  // of those that a job's number chooses
constexpr int kPorts = 10000;
constexpr int kFirstSpecialStep = 2'000'000'000;  // SLURM's batch, extern and interactive steps are no srun

// Where ranks meet that only share a job's number.
int port_of_job(const std::string& job) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return kFirstPort + static_cast<int>(hash % kPorts);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

World from_tandem() {
  World world;
  world.started_by = "tandem launch";
  world.rank = number_variable("TANDEM_RANK");
  world.size = number_variable("TANDEM_SIZE");
  world.local_rank = number_variable("TANDEM_LOCAL_RANK");
  world.local_size = number_variable("TANDEM_LOCAL_SIZE");
  world.node = number_variable("TANDEM_NODE");
  world.nodes = number_variable("TANDEM_NODES");
  world.hosts = split(variable("TANDEM_HOSTS"));
  world.listener = optional_number_variable("TANDEM_LISTENER").value_or(-1);
  return world;
}

World from_torchrun() {
  World world;
  world.started_by = "torchrun";
  world.rank = number_variable("RANK");
  world.size = number_variable("WORLD_SIZE");
  world.local_rank = number_variable("LOCAL_RANK");
  world.local_size = optional_number_variable("LOCAL_WORLD_SIZE").value_or(1);
  world.nodes = optional_number_variable("GROUP_WORLD_SIZE").value_or(world.size / std::max(world.local_size, 1));
  world.node = optional_number_variable("GROUP_RANK").value_or(world.rank / std::max(world.local_size, 1));
  const std::string address = variable("MASTER_ADDR");
  const int port = number_variable("MASTER_PORT");
  require(!address.empty(), "MASTER_ADDR is not set, though RANK and WORLD_SIZE are: set all or none");
  // torchrun's own agent may listen at MASTER_PORT.
  world.rendezvous = fmt::format("{}:{}", address, port + (variable("TORCHELASTIC_RUN_ID").empty() ? 0 : 1));
  world.secret = "torchrun " + variable("TORCHELASTIC_RUN_ID");
  return world;
}

World from_mpirun() {
  World world;
  world.started_by = "mpirun";
  world.rank = number_variable("OMPI_COMM_WORLD_RANK");
  world.size = number_variable("OMPI_COMM_WORLD_SIZE");
  world.local_rank = number_variable("OMPI_COMM_WORLD_LOCAL_RANK");
  world.local_size = number_variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int local_size = std::max(world.local_size, 1);
  world.nodes = std::max(1, (world.size + local_size - 1) / local_size);  // until the team knows
  world.node = world.rank / local_size;
  std::string uri = variable("OMPI_MCA_orte_hnp_uri");
  for (const char* name : {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"}) {
    uri = uri.empty() ? variable(name) : uri;
  }
  std::string job = variable("OMPI_MCA_ess_base_jobid") + variable("PMIX_NAMESPACE");
  job = job.empty() ? uri : job;
  const std::string hosts =
      world.local_size == world.size ? "127.0.0.1" : hosts_of_mpi_uri(variable("OMPI_MCA_orte_hnp_uri"));
  if (!hosts.empty()) {
    world.rendezvous = fmt::format("{}:{}", hosts, port_of_job(job));
  }
  world.secret = "mpirun " + job;
  return world;
}

World from_srun() {
  World world;
  world.started_by = "srun";
  world.rank = number_variable("SLURM_PROCID");
  world.size = number_variable("SLURM_STEP_NUM_TASKS");
  world.local_rank = number_variable("SLURM_LOCALID");
  world.node = number_variable("SLURM_NODEID");
  world.nodes = number_variable("SLURM_STEP_NUM_NODES");
  const std::vector<int> tasks = slurm_tasks(variable("SLURM_STEP_TASKS_PER_NODE"));
  require(static_cast<int>(tasks.size()) == world.nodes && world.node < world.nodes,
          "SLURM_STEP_TASKS_PER_NODE tells of {} nodes, SLURM_STEP_NUM_NODES of {}, SLURM_NODEID is {}", tasks.size(),
          world.nodes, world.node);
  world.local_size = tasks[world.node];
  const std::string job = variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID");
  std::string list = variable("SLURM_STEP_NODELIST");
  list = list.empty() ? variable("SLURM_JOB_NODELIST") : list;
  std::string host = list.empty() ? variable("SLURM_LAUNCH_NODE_IPADDR") : first_slurm_host(list);
  host = world.local_size == world.size ? "127.0.0.1" : host;
  if (!host.empty()) {
    world.rendezvous = fmt::format("{}:{}", host, port_of_job(job));
  }
  world.secret = "srun " + job;
  return world;
}

bool any_set(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!variable(name).empty()) {
      return true;
    }
  }
  return false;
}

// A shell inside a batch job has SLURM's variables too, without being one of its tasks.
bool inside_srun() {
  const auto step = variable("SLURM_STEP_ID");
  return !variable("SLURM_STEP_NUM_TASKS").empty() && !step.empty() && step.size() < 10 &&
         number_variable("SLURM_STEP_ID") < kFirstSpecialStep;
}

void require_sound(const World& world) {
  const auto inside = [&](const char* what, int index, int count) {
    require(index < count, "{} gives {} {} of {}: its variables contradict each other", world.started_by, what, index,
            count);
  };
  inside("rank", world.rank, world.size);
  inside("local rank", world.local_rank, world.local_size);
  inside("node", world.node, world.nodes);
  require(world.local_size <= world.size, "{} gives {} ranks on this host, and {} in all", world.started_by,
          world.local_size, world.size);
  require(world.size == 1 || !world.rendezvous.empty(),
          "{} does not say where rank 0 is: set TANDEM_RENDEZVOUS=host:port, the same for all ranks", world.started_by);
  if (world.size > 1) {
    parse_endpoint(world.rendezvous);
  }
  int listens = 0;
  socklen_t size = sizeof listens;
  require(
      world.listener < 0 || (getsockopt(world.listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens),
      "TANDEM_LISTENER is {}, which is no listening socket", world.listener);
}

}  // namespace

World world_from_environment() {
  const bool torchrun = any_set({"RANK", "WORLD_SIZE"});
  const bool mpirun = any_set({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  World world;
  if (any_set({"TANDEM_RANK", "TANDEM_SIZE", "TANDEM_LOCAL_RANK"})) {
    world = from_tandem();
  } else if (torchrun) {
    world = from_torchrun();
    require(!mpirun || (number_variable("OMPI_COMM_WORLD_RANK") == world.rank &&
                        number_variable("OMPI_COMM_WORLD_SIZE") == world.size),
            "RANK says rank {} of {}, OMPI_COMM_WORLD_RANK rank {} of {}: unset those that do not count", world.rank,
            world.size, variable("OMPI_COMM_WORLD_RANK"), variable("OMPI_COMM_WORLD_SIZE"));
  } else if (mpirun) {
    world = from_mpirun();
  } else if (inside_srun()) {
    world = from_srun();
  }
  const auto prefer = [](std::string& value, const std::string& name) {
    const std::string given = variable(name);
    value = given.empty() ? value : given;
  };
  prefer(world.rendezvous, "TANDEM_RENDEZVOUS");
  prefer(world.secret, "TANDEM_SECRET");
  prefer(world.host, "TANDEM_HOST");
  world.host = world.host.empty() ? host_name() : world.host;
  require_sound(world);
  return world;
}

std::vector<World> make_local_worlds(int size) {
  Socket listener = listen_on(true, 0);
  std::vector<World> worlds(size);
  const std::string secret = random_token();
  for (int rank = 0; rank < size; ++rank) {
    worlds[rank].rank = worlds[rank].local_rank = rank;
    worlds[rank].size = worlds[rank].local_size = size;
    worlds[rank].host = host_name();
    worlds[rank].rendezvous = fmt::format("127.0.0.1:{}", port_of(listener));
    worlds[rank].secret = secret;
    worlds[rank].started_by = "threads";
  }
  if (size > 1) {
    worlds[0].listener = listener.release();
  }
  return worlds;
}

}  // namespace tandem
