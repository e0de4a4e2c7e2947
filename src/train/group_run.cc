#include "train/group_run.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "backend/cuda_device.h"
#include "core/file.h"
#include "core/log.h"
#include "core/manifest.h"
#include "core/threads.h"
#include "store/checkpoint.h"

namespace tandem::train {

namespace fs = std::filesystem;

namespace {

// The settings that must agree on all ranks: all but those that belong to each host.
std::string shared_settings(TrainConfig config) {
  config.data = config.run = config.device = config.algorithms = "";
  config.threads = 0;
  return to_toml(config);
}

bool wants_gpu(const TrainConfig& config) { return config.device != "cpu" && backend::gpu_count() > 0; }

std::string random_name() {
  std::random_device random;
  return fmt::format(".group-{:08x}{:08x}", random(), random());
}

// "<step> <hash>" of a run's latest checkpoint; empty if there is none, or if it is damaged: then resuming finds the
// newest sound one.
std::string checkpoint_identity(const fs::path& run) {
  std::error_code none;
  const fs::path latest = run / "latest";
  if (!fs::exists(latest, none) || !has_manifest(latest)) {
    return "";
  }
  try {
    const std::string manifest = read_file(latest / "manifest.json", 1 << 20);
    return fmt::format("{} {}", store::load_checkpoint(latest, false).state.step, checksum(manifest));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

void take_own_part(TrainConfig& config, const dist::World& world) {
  if (world.local_size == 1) {
    return;
  }
  if (wants_gpu(config)) {
    if (config.device == "auto" || config.device == "cuda") {
      const std::vector<int> usable = backend::usable_gpus();
      const auto gpus = static_cast<int>(usable.size());
      require(world.local_size <= gpus || config.dist.share_device,
              "{} workers on {}, which has {} GPU{} that can be used: start at most one for each, or set "
              "dist.share_device=true",
              world.local_size, world.host, gpus, gpus == 1 ? "" : "s");
      config.device = fmt::format("cuda:{}", usable[static_cast<size_t>(world.local_rank % gpus)]);
    }
  } else if (config.threads == 0) {
    config.threads = std::max(1, Threads().count() / world.local_size);
  }
}

int workers_of_machine(const TrainConfig& config) {
  const bool any_gpu = config.device == "auto" || config.device == "cuda";
  return any_gpu && dist::world_from_environment().alone() ? std::max(1, backend::gpu_count()) : 1;
}

dist::Identity group_identity(const TrainConfig& config, const data::Prepared& data, const std::string& checkpoint) {
  return {.version = TANDEM_VERSION,
          .config = shared_settings(config),
          .data = data.fingerprint,
          .checkpoint = checkpoint,
          .device = wants_gpu(config) && !config.dist.share_device ? config.device : ""};
}

dist::ProcessGroupOptions group_options(const DistConfig& config) {
  const auto milliseconds = [](double seconds) { return std::chrono::milliseconds(std::llround(1e3 * seconds)); };
  dist::ProcessGroupOptions options;
  options.heartbeat = milliseconds(config.heartbeat_seconds);
  options.silence = milliseconds(config.silence_seconds);
  options.collective_timeout = milliseconds(60 * config.collective_minutes);
  return options;
}

GroupRun::GroupRun(TrainConfig& config, const data::Prepared& data, bool start_over) : settings_(to_toml(config)) {
  const dist::World world = dist::world_from_environment();
  take_own_part(config, world);
  if (world.rank == 0) {
    directory_.emplace(config.run);
  }
  // If a launcher restarts its workers, they resume their own checkpoints instead of starting over again.
  const std::string launch = dist::variable("TANDEM_LAUNCH");
  const fs::path launched = fs::path(config.run) / store::RunDirectory::kLaunchFile;
  start_over = start_over && (launch.empty() || read_small_file(launched) != launch);
  starts_over_ = start_over;
  group_ =
      dist::join_process_group(world, group_identity(config, data, start_over ? "" : checkpoint_identity(config.run)),
                               group_options(config.dist));
  const int owner = first_node_on_disk(config.run);
  keeps_checkpoints_ = first() || (group_->local_rank() == 0 && owner == group_->node());
  if (!first() && keeps_checkpoints_) {
    directory_.emplace(config.run);
  }
  barrier();
  if (!directory_) {
    directory_.emplace(config.run, store::RunDirectory::Use::guest);
  }
}

void GroupRun::clear() {
  if (keeps_checkpoints_) {
    directory_->clear();
    write_file(directory_->root() / store::RunDirectory::kLaunchFile, dist::variable("TANDEM_LAUNCH"));
  }
  barrier();
}

// The lowest node that shares this disk. The first rank of each node leaves a file there, and all look for these files.
int GroupRun::first_node_on_disk(const fs::path& run) {
  const std::string name = broadcast(first() ? random_name() : "");
  const auto mark = [&](int node) { return run / fmt::format("{}-{}", name, node); };
  const bool leaves = size() > 1 && group_->local_rank() == 0;
  std::error_code none;
  if (leaves) {
    fs::create_directories(run, none);
    write_file(mark(group_->node()), "");
  }
  barrier();
  int node = 0;
  while (node < group_->node() && !fs::exists(mark(node), none)) {
    ++node;
  }
  barrier();
  if (leaves) {
    fs::remove(mark(group_->node()), none);
  }
  return node;
}

double GroupRun::broadcast(double value, int root) {
  group_->communicator().broadcast(host_view(&value, 1, 1), root);
  return value;
}

// ---- the engine

namespace {

// Whether every host has the same number of ranks, more than one.
bool has_levels(const dist::ProcessGroup& group) {
  std::vector<int> ranks(static_cast<size_t>(group.nodes()));
  for (const dist::RankInfo& member : group.ranks()) {
    ++ranks[static_cast<size_t>(member.node)];
  }
  return group.nodes() > 1 && ranks[0] > 1 && std::equal(ranks.begin() + 1, ranks.end(), ranks.begin());
}

std::unique_ptr<dist::Communicator> make_host_communicator(dist::ProcessGroup& group, const DistConfig& config) {
  if (!config.hierarchical || !has_levels(group)) {
    return nullptr;
  }
  log::info("gradients are added up inside the {} hosts, then between them", group.nodes());
  return dist::make_hierarchical_communicator(group);
}

// With device = auto, ranks may have picked different device types.
void require_same_kind(dist::ProcessGroup& group, bool gpu) {
  const std::vector<std::string> kinds = group.gather(gpu ? "a GPU" : "the CPU");
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string& kind = kinds[static_cast<size_t>(rank)];
    require(kind == kinds[0],
            "{} computes on {} and {} on {}: set device=cpu or device=cuda for all, and see why one "
            "has no GPU",
            group.name_of(0), kinds[0], group.name_of(rank), kind);
  }
}

// The first reason why a rank cannot use NCCL; empty if all can.
std::string first_problem(dist::ProcessGroup& group, const std::string& own) {
  const std::vector<std::string> problems = group.gather(own);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (const std::string& problem = problems[static_cast<size_t>(rank)]; !problem.empty()) {
      return fmt::format("{}: {}", group.name_of(rank), problem);
    }
  }
  return "";
}

// Sets what a user would otherwise have to set; variables that are already set stay.
void set_up_nccl(const dist::ProcessGroup& group, const DistConfig& config) {
  const dist::RankInfo& own = group.ranks()[static_cast<size_t>(group.rank())];
  if (!own.interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", ("=" + own.interface).c_str(), 0);  // the interface between the ranks
  }
  if (config.share_device) {  // otherwise NCCL refuses two ranks on one GPU of one host
    setenv("NCCL_HOSTID", fmt::format("{}-{}", own.host, own.rank).c_str(), 0);
  }
}

}  // namespace

std::unique_ptr<dist::Communicator> make_gradient_communicator(dist::ProcessGroup& group, backend::Backend& backend,
                                                               const DistConfig& config) {
  if (group.size() == 1) {
    return nullptr;
  }
  using Engine = DistConfig::Engine;
  const DeviceStream stream = backend.stream();
  require_same_kind(group, stream.handle != nullptr);
  if (stream.handle == nullptr) {
    require(config.engine != Engine::nccl, "dist.engine = \"nccl\" needs GPUs: use \"auto\" or \"gloo\"");
    return make_host_communicator(group, config);
  }
  const std::string problem = first_problem(group, dist::why_no_nccl());
  require(config.engine != Engine::nccl || problem.empty(), "dist.engine = \"nccl\" cannot be used: {}", problem);
  if (config.engine != Engine::gloo && problem.empty()) {
    set_up_nccl(group, config);
    log::info("gradients travel between GPUs over NCCL");
    return dist::make_nccl_communicator(group, stream);
  }
  log::info("gradients travel between GPUs over Gloo, through the hosts' memory{}",
            problem.empty() ? "" : " (" + problem + ")");
  return dist::make_staged_communicator(make_host_communicator(group, config), group, stream);
}

}  // namespace tandem::train
