#include "train/gradient_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/log.h"

namespace tandem::train {

namespace {

// Every host has the same number of ranks, and more than one.
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

// What keeps any rank from NCCL; empty where all can use it.
std::string first_problem(dist::ProcessGroup& group, const std::string& own) {
  const std::vector<std::string> problems = group.gather(own);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (const std::string& problem = problems[static_cast<size_t>(rank)]; !problem.empty()) {
      return fmt::format("{}: {}", group.name_of(rank), problem);
    }
  }
  return "";
}

// What a user would otherwise have to set; what is set already stays.
void set_up_nccl(const dist::ProcessGroup& group, const DistConfig& config) {
  const dist::RankInfo& own = group.ranks()[static_cast<size_t>(group.rank())];
  if (!own.interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", ("=" + own.interface).c_str(), 0);  // the one by which the ranks reach each other
  }
  if (config.share_device) {  // NCCL refuses two ranks on one GPU of one host
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
