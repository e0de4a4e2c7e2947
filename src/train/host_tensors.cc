#include "train/host_tensors.h"

#include <algorithm>

namespace tandem::train {

namespace {

// Shards of a slot in which every rank has `each` numbers of its own.
std::vector<dist::ShardPieces> one_after_the_other(int64_t each, int ranks) {
  std::vector<dist::ShardPieces> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.push_back({{each * rank, each, 0}});
  }
  return shards;
}

int64_t end_of(const std::vector<dist::ShardPieces>& shards) {
  int64_t end = 0;
  for (const dist::ShardPieces& pieces : shards) {
    for (const dist::ShardPiece& piece : pieces) {
      end = std::max(end, piece.begin + piece.count);
    }
  }
  return end;
}

void gather(std::vector<float>& whole, const std::vector<dist::ShardPieces>& shards, const float* own,
            dist::Communicator& host) {
  std::vector<float> part;
  for (int rank = 0; rank < host.size(); ++rank) {
    const dist::ShardPieces& pieces = shards[static_cast<size_t>(rank)];
    part.resize(static_cast<size_t>(dist::elements_of(pieces)));
    if (rank == host.rank()) {
      std::copy_n(own, part.size(), part.data());
    }
    host.broadcast(host_view(part.data(), 1, std::ssize(part)), rank);
    for (const dist::ShardPiece& piece : pieces) {
      std::copy_n(part.data() + piece.first, piece.count, whole.data() + piece.begin);
    }
  }
}

}  // namespace

HostTensors::HostTensors(backend::Backend& backend, const ModelState& weights, const optim::Optimizer& optimizer,
                         const GradientUpdate& update, dist::Communicator& host, HostCopy::Purpose purpose)
    : rank_(host.rank()),
      flat_(weights.masters().size()),
      weights_(backend, weights.masters(), purpose),
      average_(backend, weights.average(), purpose) {
  const std::vector<dist::ShardPieces> shards = update.shards(host);
  for (const optim::Slot& slot : optimizer.slots()) {
    HostSlot& added = slots_.emplace_back(HostSlot{slot, HostCopy(backend, slot.view, purpose), {}, {}});
    if (slot.extent == optim::Slot::Extent::parameters) {
      added.shards = shards;
    } else if (slot.extent == optim::Slot::Extent::own && host.size() > 1) {
      added.shards = one_after_the_other(slot.view.size(), host.size());
    }
    if (!added.shards.empty()) {
      added.whole.resize(static_cast<size_t>(std::max(flat_, end_of(added.shards))));
      if (purpose == HostCopy::read) {
        gather(added.whole, added.shards, added.own.view().host<float>(), host);
      }
    }
  }
}

View HostTensors::HostSlot::view(int64_t flat) const {
  if (shards.empty()) {
    return own.view();
  }
  return slot.extent == optim::Slot::Extent::parameters
             ? host_view(whole.data(), 1, flat)
             : host_view(whole.data(), slot.view.rows * std::ssize(shards), slot.view.cols);
}

store::CheckpointTensors HostTensors::views() const {
  store::CheckpointTensors all{weights_.view(), {}, average_.view()};
  for (const HostSlot& slot : slots_) {
    all.slots.push_back({slot.slot.name, slot.view(flat_), slot.slot.extent == optim::Slot::Extent::parameters});
  }
  return all;
}

void HostTensors::commit() {
  weights_.commit();
  average_.commit();
  for (HostSlot& slot : slots_) {
    if (!slot.shards.empty()) {
      for (const dist::ShardPiece& piece : slot.shards[static_cast<size_t>(rank_)]) {
        std::copy_n(slot.whole.data() + piece.begin, piece.count, slot.own.view().host<float>() + piece.first);
      }
    }
    slot.own.commit();
  }
}

}  // namespace tandem::train
