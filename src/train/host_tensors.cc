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

// Sends each rank's part to all; `whole` may be null.
void gather(float* whole, const std::vector<dist::ShardPieces>& shards, const float* own, dist::Communicator& host) {
  std::vector<float> part;
  for (int rank = 0; rank < host.size(); ++rank) {
    const dist::ShardPieces& pieces = shards[static_cast<size_t>(rank)];
    part.resize(static_cast<size_t>(dist::elements_of(pieces)));
    if (rank == host.rank()) {
      std::copy_n(own, part.size(), part.data());
    }
    host.broadcast(host_view(part.data(), 1, std::ssize(part)), rank);
    for (const dist::ShardPiece& piece : pieces) {
      if (whole != nullptr) {
        std::copy_n(part.data() + piece.first, piece.count, whole + piece.begin);
      }
    }
  }
}

}  // namespace

HostTensors::HostTensors(backend::Backend& backend, const ModelState& weights, const optim::Optimizer& optimizer,
                         const GradientUpdate& update, dist::Communicator& host, Purpose purpose)
    : host_(&host),
      purpose_(purpose),
      flat_(weights.masters().size()),
      weights_(backend, purpose == save_not ? View{} : weights.masters(), purpose == save),
      average_(backend, purpose == save_not ? View{} : weights.average(), purpose == save) {
  const std::vector<dist::ShardPieces> sharded = update.shards(host);
  for (const optim::Slot& slot : optimizer.slots()) {
    std::vector<dist::ShardPieces> shards;
    if (slot.extent == optim::Slot::Extent::parameters) {
      shards = sharded;
    } else if (slot.extent == optim::Slot::Extent::own && host.size() > 1) {
      shards = one_after_the_other(slot.view.size(), host.size());
    }
    const bool whole = shards.empty();
    HostCopy own(backend, whole && purpose == save_not ? View{} : slot.view, whole && purpose == save);
    HostSlot& added = slots_.emplace_back(HostSlot{slot, std::move(own), std::move(shards), {}});
    if (!whole && purpose != save_not) {
      added.whole.resize(static_cast<size_t>(std::max(flat_, end_of(added.shards))));
    }
  }
}

void HostTensors::read() {
  weights_.read();
  average_.read();
  for (HostSlot& slot : slots_) {
    slot.own.read();
    if (!slot.shards.empty()) {
      gather(slot.whole.empty() ? nullptr : slot.whole.data(), slot.shards, slot.own.view().host<float>(), *host_);
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
  if (purpose_ == save_not) {
    return {};
  }
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
      for (const dist::ShardPiece& piece : slot.shards[static_cast<size_t>(host_->rank())]) {
        std::copy_n(slot.whole.data() + piece.begin, piece.count, slot.own.view().host<float>() + piece.first);
      }
    }
    slot.own.commit();
  }
}

}  // namespace tandem::train
