#include "dist/world.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/parse.h"
#include "dist/secret.h"
#include "dist/socket.h"

namespace tandem::dist {
namespace {

constexpr int kFirstPort = 20000;  // the ports that job numbers are mapped to
constexpr int kPorts = 10000;
constexpr int kFirstSpecialStep = 2'000'000'000;  // SLURM numbers batch, extern and interactive steps from here on

// A launcher and the environment variables that it sets; "" for those that it does not set.
struct Launcher {
  const char* name;
  const char *rank, *size, *local_rank, *local_size, *node, *nodes;
  bool partial;  // whether the last three may be unset
  bool (*started_us)();
  // Sets what these variables do not give, mainly the address of rank 0, and returns a name of the job.
  std::string (*complete)(World&);
};

// A missing host number is derived as if every host had the same number of ranks.
World ranks_from(const Launcher& launcher) {
  const auto number = [&](const std::string& name, int otherwise) {
    return name.empty()       ? otherwise
           : launcher.partial ? optional_number_variable(name).value_or(otherwise)
                              : number_variable(name);
  };
  World world;
  world.started_by = launcher.name;
  world.rank = number_variable(launcher.rank);
  world.size = number_variable(launcher.size);
  world.local_rank = number_variable(launcher.local_rank);
  world.local_size = number(launcher.local_size, 1);
  const int local_size = std::max(world.local_size, 1);
  world.node = number(launcher.node, world.rank / local_size);
  world.nodes = number(launcher.nodes, std::max(1, (world.size + local_size - 1) / local_size));
  return world;
}

// Workers that only share a job's number meet at a port derived from it. Returns the number.
std::string meet_by_job(World& world, const std::string& hosts, const std::string& job) {
  const std::string host = world.local_size == world.size ? "127.0.0.1" : hosts;
  Checksum sum;
  sum.add(job);
  if (!host.empty()) {
    world.rendezvous = fmt::format("{}:{}", host, kFirstPort + sum.value() % kPorts);
  }
  return job;
}

bool any_set(std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [](const char* name) { return !variable(name).empty(); });
}

bool started_by_tandem() { return any_set({"TANDEM_RANK", "TANDEM_SIZE", "TANDEM_LOCAL_RANK"}); }
bool started_by_torchrun() { return any_set({"RANK", "WORLD_SIZE"}); }
bool started_by_mpirun() { return any_set({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}); }

// A shell inside a batch job has SLURM's variables too, but is not one of its tasks.
bool started_by_srun() {
  const auto step = variable("SLURM_STEP_ID");
  return !variable("SLURM_STEP_NUM_TASKS").empty() && !step.empty() && step.size() < 10 &&
         number_variable("SLURM_STEP_ID") < kFirstSpecialStep;
}

std::string complete_tandem(World& world) {
  world.hosts = split(variable("TANDEM_HOSTS"), ',');
  world.listener = optional_number_variable("TANDEM_LISTENER").value_or(-1);
  return world.rendezvous;
}

std::string complete_torchrun(World& world) {
  const std::string address = variable("MASTER_ADDR");
  const int port = number_variable("MASTER_PORT");
  require(!address.empty(), "MASTER_ADDR is not set, though RANK and WORLD_SIZE are: set all or none");
  // torchrun's own agent may listen at MASTER_PORT.
  world.rendezvous = fmt::format("{}:{}", address, port + (variable("TORCHELASTIC_RUN_ID").empty() ? 0 : 1));
  require(!started_by_mpirun() || (number_variable("OMPI_COMM_WORLD_RANK") == world.rank &&
                                   number_variable("OMPI_COMM_WORLD_SIZE") == world.size),
          "torchrun's variables give rank {} of {}, mpirun's rank {} of {}: unset the ones that are stale", world.rank,
          world.size, variable("OMPI_COMM_WORLD_RANK"), variable("OMPI_COMM_WORLD_SIZE"));
  return variable("TORCHELASTIC_RUN_ID");
}

// The nodes are a guess until all ranks have joined.
std::string complete_mpirun(World& world) {
  std::string uri = variable("OMPI_MCA_orte_hnp_uri");
  for (const char* name : {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"}) {
    uri = uri.empty() ? variable(name) : uri;
  }
  const std::string job = variable("OMPI_MCA_ess_base_jobid") + variable("PMIX_NAMESPACE");
  return meet_by_job(world, hosts_of_mpi_uri(variable("OMPI_MCA_orte_hnp_uri")), job.empty() ? uri : job);
}

std::string complete_srun(World& world) {
  const std::vector<int> tasks = slurm_tasks(variable("SLURM_STEP_TASKS_PER_NODE"));
  require(static_cast<int>(tasks.size()) == world.nodes && world.node < world.nodes,
          "SLURM_STEP_TASKS_PER_NODE has {} nodes, SLURM_STEP_NUM_NODES is {}, SLURM_NODEID is {}", tasks.size(),
          world.nodes, world.node);
  world.local_size = tasks[world.node];
  std::string list = variable("SLURM_STEP_NODELIST");
  list = list.empty() ? variable("SLURM_JOB_NODELIST") : list;
  return meet_by_job(world, list.empty() ? variable("SLURM_LAUNCH_NODE_IPADDR") : first_slurm_host(list),
                     variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID"));
}

// The first launcher in this order that has started this process counts.
constexpr Launcher kLaunchers[] = {
    {"tandem launch", "TANDEM_RANK", "TANDEM_SIZE", "TANDEM_LOCAL_RANK", "TANDEM_LOCAL_SIZE", "TANDEM_NODE",
     "TANDEM_NODES", false, started_by_tandem, complete_tandem},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", true,
     started_by_torchrun, complete_torchrun},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "", "", false, started_by_mpirun, complete_mpirun},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", false,
     started_by_srun, complete_srun},
};

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
      "TANDEM_LISTENER is {}, which is not a listening socket", world.listener);
}

}  // namespace

World world_from_environment() {
  const auto launcher =
      std::ranges::find_if(kLaunchers, [](const Launcher& candidate) { return candidate.started_us(); });
  World world;
  std::string job;
  if (launcher != std::end(kLaunchers)) {
    world = ranks_from(*launcher);
    job = launcher->complete(world);
  }
  const auto prefer = [](std::string& value, const std::string& name) {
    const std::string given = variable(name);
    value = given.empty() ? value : given;
  };
  prefer(world.rendezvous, "TANDEM_RENDEZVOUS");
  prefer(world.host, "TANDEM_HOST");
  world.host = world.host.empty() ? host_name() : world.host;
  require_sound(world);
  if (!world.alone()) {
    world.secret = given_secret();
    if (world.secret.empty()) {
      require(
          world.local_size == world.size,
          "{} has started ranks on several hosts, and they have no secret: set TANDEM_SECRET to what `tandem secret` "
          "prints, or TANDEM_SECRET_FILE to a file with it, the same for all ranks",
          world.started_by);
      world.secret = secret_on_this_host(world.started_by + " " + job);
    }
  }
  return world;
}

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::optional<int> optional_number_variable(const std::string& name) {
  const std::string text = variable(name);
  if (text.empty()) {
    return std::nullopt;
  }
  const auto value = parse_number<int>(text);
  require(value && *value >= 0, "{} is '{}', not a whole number", name, text);
  return value;
}

int number_variable(const std::string& name) {
  const auto value = optional_number_variable(name);
  require(value.has_value(), "{} is not set, though other variables of its launcher are: set all or none", name);
  return *value;
}

std::string first_slurm_host(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) {
    return list.substr(0, comma);
  }
  const size_t close = list.find(']', bracket);
  require(close != std::string::npos, "SLURM's list of nodes '{}' has no closing bracket", list);
  const size_t end = std::min(list.find_first_of(",-]", bracket), close);
  const size_t next = std::min(list.find(',', close), list.size());
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, next - close - 1);
}

std::vector<int> slurm_tasks(const std::string& list) {
  std::vector<int> tasks;
  for (const std::string& part : split(list, ',')) {
    const size_t times = part.find("(x");
    const auto count = parse_number<int>(std::string_view(part).substr(0, times));
    const bool repeated = times != std::string::npos && part.back() == ')';
    const auto nodes = repeated ? parse_number<int>(std::string_view(part).substr(times + 2, part.size() - times - 3))
                                : std::optional(times == std::string::npos ? 1 : -1);
    require(count && *count >= 0 && nodes && *nodes >= 0 && tasks.size() + *nodes <= 1U << 20,
            "SLURM's task counts by node, '{}', are malformed", list);
    tasks.insert(tasks.end(), *nodes, *count);
  }
  return tasks;
}

std::string hosts_of_mpi_uri(const std::string& uri) {
  const std::string before = "tcp://";
  const size_t begin = uri.find(before);
  const size_t end = begin == std::string::npos ? begin : uri.find_first_of(":;", begin + before.size());
  return end == std::string::npos ? "" : uri.substr(begin + before.size(), end - begin - before.size());
}

}  // namespace tandem::dist
