// The content of a checkpoint in host memory, for saving a run or for resuming it.
#pragma once

#include <vector>

#include "store/checkpoint.h"
#include "train/gradient_update.h"
#include "train/model_state.h"

namespace tandem::train {

// A contiguous f32 view in host memory: the view itself if it lies there, else a copy. What is written to it takes
// effect with commit().
class HostCopy {
 public:
  enum Purpose : uint8_t { read, write };  // for `write`, the initial content is undefined

  // An empty view stays empty.
  HostCopy(backend::Backend& backend, const View& view, Purpose purpose) : backend_(&backend), target_(view) {
    if (view.memory == Memory::device && !view.empty()) {
      copy_.resize(static_cast<size_t>(view.size()));
      if (purpose == read) {
        backend.download(copy_.data(), view);
      }
    }
  }
  HostCopy(HostCopy&&) = default;

  View view() const { return copy_.empty() ? target_ : host_view(copy_.data(), target_.rows, target_.cols); }

  // Copies what was written back to the original view.
  void commit() {
    if (!copy_.empty()) {
      backend_->upload(target_, copy_.data());
      backend_->wait();
    }
  }

 private:
  backend::Backend* backend_;
  View target_;
  std::vector<float> copy_;
};

// All tensors of a checkpoint. If the optimizer is sharded, its whole state is gathered from all ranks, so every rank
// must make one for reading.
class HostTensors {
 public:
  // host: communicator of all ranks, for host memory.
  HostTensors(backend::Backend& backend, const ModelState& weights, const optim::Optimizer& optimizer,
              const GradientUpdate& update, dist::Communicator& host, HostCopy::Purpose purpose);

  store::CheckpointTensors views() const;
  // After writing: copies this rank's part back to the backend's memory.
  void commit();

 private:
  struct HostSlot {
    optim::Slot slot;
    HostCopy own;                           // the part that this rank keeps
    std::vector<dist::ShardPieces> shards;  // the part that each rank keeps; empty: all of it
    std::vector<float> whole;               // the whole slot, if it is sharded

    View view(int64_t flat) const;
  };

  int rank_;
  int64_t flat_;
  HostCopy weights_, average_;
  std::vector<HostSlot> slots_;
};

}  // namespace tandem::train
