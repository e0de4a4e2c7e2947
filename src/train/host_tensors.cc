#include "train/host_tensors.h"

#include <algorithm>

namespace tandem {

namespace {

// What each rank keeps of a slot that is other numbers on every rank.
std::vector<ShardPieces> one_after_the_other(int64_t each, int ranks) {
  std::vector<ShardPieces> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.push_back({{each * rank, each, 0}});
  }
  return shards;
}

int64_t end_of(const std::vector<ShardPieces>& shards) {
  int64_t end = 0;
  for (const ShardPieces& pieces : shards) {
    for (const ShardPiece& piece : pieces) {
      end = std::max(end, piece.begin + piece.count);
    }
  }
  return end;
}

void gather(std::vector<float>& whole, const std::vector<ShardPieces>& shards, const float* own, Communicator& host) {
  std::vector<float> part;
  for (int rank = 0; rank < host.size(); ++rank) {
    const ShardPieces& pieces = shards[static_cast<size_t>(rank)];
    part.resize(static_cast<size_t>(elements_of(pieces)));
    if (rank == host.rank()) {
      std::copy_n(own, part.size(), part.data());
    }
    host.broadcast(host_view(part.data(), 1, std::ssize(part)), rank);
    for (const ShardPiece& piece : pieces) {
      std::copy_n(part.data() + piece.first, piece.count, whole.data() + piece.begin);
    }
  }
}

}  // namespace

HostTensors::HostTensors(Backend& backend, const ModelState& weights, const Optimizer& optimizer,
                         const GradientUpdate& update, Communicator& host, HostCopy::Purpose purpose)
    : rank_(host.rank()),
      flat_(weights.masters().size()),
      weights_(backend, weights.masters(), purpose),
      average_(backend, weights.average(), purpose) {
  const std::vector<ShardPieces> shards = update.shards(host);
  for (const Slot& slot : optimizer.slots()) {
    HostSlot& added = slots_.emplace_back(HostSlot{slot, HostCopy(backend, slot.view, purpose), {}, {}});
    if (slot.extent == Slot::Extent::parameters) {
      added.shards = shards;
    } else if (slot.extent == Slot::Extent::own && host.size() > 1) {
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
  return slot.extent == Slot::Extent::parameters
             ? host_view(whole.data(), 1, flat)
             : host_view(whole.data(), slot.view.rows * std::ssize(shards), slot.view.cols);
}

CheckpointTensors HostTensors::views() const {
  CheckpointTensors all{weights_.view(), {}, average_.view()};
  for (const HostSlot& slot : slots_) {
    all.slots.push_back({slot.slot.name, slot.view(flat_), slot.slot.extent == Slot::Extent::parameters});
  }
  return all;
}

void HostTensors::commit() {
  weights_.commit();
  average_.commit();
  for (HostSlot& slot : slots_) {
    if (!slot.shards.empty()) {
      for (const ShardPiece& piece : slot.shards[static_cast<size_t>(rank_)]) {
        std::copy_n(slot.whole.data() + piece.begin, piece.count, slot.own.view().host<float>() + piece.first);
      }
    }
    slot.own.commit();
  }
}

}  // namespace tandem
