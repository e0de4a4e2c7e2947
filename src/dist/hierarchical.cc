#include "dist/hierarchical.h"

#include "core/error.h"
#include "dist/work_queue.h"

namespace tandem::dist {
namespace {

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(ProcessGroup& group, Communicator& inside, Communicator& between)
      : all_(group.communicator()), inside_(inside), between_(between) {}

  int rank() const override { return all_.rank(); }
  int size() const override { return all_.size(); }
  int shard_number() const override { return inside_.rank() * between_.size() + between_.rank(); }

  Handle start_all_reduce(const View& buffer) override {
    require_communicable(buffer);
    return Handle(queue_.add([this, buffer] {
      const View part = own_part(buffer);
      inside_.reduce_scatter(buffer);
      between_.all_reduce(part);
      inside_.all_gather(buffer);
    }));
  }
  Handle start_rounded_all_reduce(const View& sums, const View& values) override {
    require_communicable(sums, values);
    return Handle(queue_.add([this, sums, values] {
      inside_.reduce_scatter(values);
      between_.start_rounded_all_reduce(own_part(sums), own_part(values)).wait();
      inside_.all_gather(sums);
    }));
  }
  Handle start_reduce_scatter(const View& buffer) override {
    require_equal_shards(buffer);
    return Handle(queue_.add([this, buffer] {
      inside_.reduce_scatter(buffer);
      between_.reduce_scatter(own_part(buffer));
    }));
  }
  Handle start_all_gather(const View& buffer) override {
    require_equal_shards(buffer);
    return Handle(queue_.add([this, buffer] {
      between_.all_gather(own_part(buffer));
      inside_.all_gather(buffer);
    }));
  }
  Handle start_broadcast(const View& buffer, int root) override { return all_.start_broadcast(buffer, root); }
  Handle start_barrier() override { return all_.start_barrier(); }

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
  Traffic planned_all_gather(int64_t count, DType type) const override {
    return inside_.planned_all_gather(count, type) + between_.planned_all_gather(inside_.own_shard(count).count, type);
  }

 private:
  View own_part(const View& buffer) const {
    const Shard part = inside_.own_shard(buffer.size());
    return buffer.reshape(1, buffer.size()).slice_cols(part.begin, part.count);
  }
  void require_equal_shards(const View& buffer) const {
    require_communicable(buffer);
    require(buffer.size() % size() == 0, "{} elements cannot be cut into {} equal shards", buffer.size(), size());
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
