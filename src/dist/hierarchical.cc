#include "core/error.h"
#include "dist/background.h"
#include "dist/process_group.h"

namespace tandem::dist {
namespace {

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(ProcessGroup& group, Communicator& inside, Communicator& between)
      : all_(group.communicator()), inside_(inside), between_(between) {}

  int rank() const override { return all_.rank(); }
  int size() const override { return all_.size(); }
  int shard_number() const override { return inside_.rank() * between_.size() + between_.rank(); }

  Handle start(const Collective& call) override {
    if (call.kind == Kind::broadcast || call.kind == Kind::barrier) {
      return all_.start(call);
    }
    require_communicable(call);
    const bool shards = call.kind == Kind::reduce_scatter || call.kind == Kind::all_gather;
    require(!shards || call.buffer.size() % size() == 0, "{} elements cannot be cut into {} equal shards",
            call.buffer.size(), size());
    return Handle(queue_.add([this, call] {
      if (call.kind != Kind::all_gather) {
        inside_.reduce_scatter(call.buffer);
      }
      between_.start({call.kind, own_part(call.buffer), own_part(call.sums)}).wait();
      if (call.kind != Kind::reduce_scatter) {
        inside_.all_gather(call.kind == Kind::rounded_all_reduce ? call.sums : call.buffer);
      }
    }));
  }

  void abort(const std::string& reason) override {
    inside_.abort(reason);
    between_.abort(reason);
    all_.abort(reason);
  }
  double transfer_seconds() const override { return inside_.transfer_seconds() + between_.transfer_seconds(); }
  Traffic traffic() const override { return inside_.traffic() + between_.traffic(); }
  Traffic planned_reduce_scatter(int64_t count, DType type) const override {
    return inside_.planned_reduce_scatter(count, type) +
           between_.planned_reduce_scatter(inside_.own_shard(count).count, type);
  }

 private:
  View own_part(const View& buffer) const {
    const Shard part = inside_.own_shard(buffer.size());
    return buffer.reshape(1, buffer.size()).slice_cols(part.begin, part.count);
  }

  Communicator &all_, &inside_, &between_;
  WorkQueue queue_;  // last, so that it ends first
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(ProcessGroup& group) {
  std::vector<int> inside, between;
  std::vector<int> seen(static_cast<size_t>(group.nodes()));
  for (const RankInfo& member : group.ranks()) {
    const int local_rank = seen[static_cast<size_t>(member.node)]++;
    if (member.node == group.node()) {
      inside.push_back(member.rank);
    }
    if (local_rank == group.local_rank()) {
      between.push_back(member.rank);
    }
  }
  require(static_cast<int>(inside.size()) == group.local_size() && static_cast<int>(between.size()) == group.nodes(),
          "the hosts have different numbers of ranks");
  Communicator& own_host = group.add_communicator(fmt::format("host {}", group.node()), inside);
  Communicator& same_local_rank = group.add_communicator(fmt::format("local rank {}", group.local_rank()), between);
  return std::make_unique<HierarchicalCommunicator>(group, own_host, same_local_rank);
}

}  // namespace tandem::dist
