#include "train/gradient_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/log.h"
#include "dist/device_communicator.h"
#include "dist/hierarchical.h"

namespace tandem {

namespace {

// Every host has the same number of ranks, and more than one.
bool has_levels(const Team& team) {
  std::vector<int> ranks(static_cast<size_t>(team.nodes()));
  for (const Member& member : team.members()) {
    ++ranks[static_cast<size_t>(member.node)];
  }
  return team.nodes() > 1 && ranks[0] > 1 && std::equal(ranks.begin() + 1, ranks.end(), ranks.begin());
}

std::unique_ptr<Communicator> make_host_communicator(Team& team, const DistConfig& config) {
  if (!config.hierarchical || !has_levels(team)) {
    return nullptr;
  }
  log::info("gradients are added up inside the {} hosts, then between them", team.nodes());
  return make_hierarchical_communicator(team);
}

// With device = auto, ranks may have picked different device types.
void require_same_kind(Team& team, bool gpu) {
  const std::vector<std::string> kinds = team.gather(gpu ? "a GPU" : "the CPU");
  for (int rank = 1; rank < team.size(); ++rank) {
    const std::string& kind = kinds[static_cast<size_t>(rank)];
    require(kind == kinds[0],
            "{} computes on {} and {} on {}: set device=cpu or device=cuda for all, and see why one "
            "has no GPU",
            team.name_of(0), kinds[0], team.name_of(rank), kind);
  }
}

// What keeps any rank from NCCL; empty where all can use it.
std::string first_problem(Team& team, const std::string& own) {
  const std::vector<std::string> problems = team.gather(own);
  for (int rank = 0; rank < team.size(); ++rank) {
    if (const std::string& problem = problems[static_cast<size_t>(rank)]; !problem.empty()) {
      return fmt::format("{}: {}", team.name_of(rank), problem);
    }
  }
  return "";
}

// What a user would otherwise have to set; what is set already stays.
void set_up_nccl(const Team& team, const DistConfig& config) {
  const Member& own = team.members()[static_cast<size_t>(team.rank())];
  if (!own.interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", ("=" + own.interface).c_str(), 0);  // the one by which the ranks reach each other
  }
  if (config.share_device) {  // NCCL refuses two ranks on one GPU of one host
    setenv("NCCL_HOSTID", fmt::format("{}-{}", own.host, own.rank).c_str(), 0);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_gradient_communicator(Team& team, Backend& backend, const DistConfig& config) {
  if (team.size() == 1) {
    return nullptr;
  }
  using Engine = DistConfig::Engine;
  const DeviceStream stream = backend.stream();
  require_same_kind(team, stream.handle != nullptr);
  if (stream.handle == nullptr) {
    require(config.engine != Engine::nccl, "dist.engine = \"nccl\" needs GPUs: use \"auto\" or \"gloo\"");
    return make_host_communicator(team, config);
  }
  const std::string problem = first_problem(team, why_no_nccl());
  require(config.engine != Engine::nccl || problem.empty(), "dist.engine = \"nccl\" cannot be used: {}", problem);
  if (config.engine != Engine::gloo && problem.empty()) {
    set_up_nccl(team, config);
    log::info("gradients travel between GPUs over NCCL");
    return make_nccl_communicator(team, stream);
  }
  log::info("gradients travel between GPUs over Gloo, through the hosts' memory{}",
            problem.empty() ? "" : " (" + problem + ")");
  return make_staged_communicator(make_host_communicator(team, config), team, stream);
}

}  // namespace tandem
