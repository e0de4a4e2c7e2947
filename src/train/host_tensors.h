// The content of a checkpoint in host memory, for saving a run or for resuming it.
#pragma once

#include <vector>

#include "store/checkpoint.h"
#include "train/gradient_update.h"
#include "train/model_state.h"

namespace tandem::train {

// A contiguous f32 view in host memory: the view itself if it lies there, else a copy with room for it; `apart`: a copy
// in any case.
class HostCopy {
 public:
  // An empty view stays empty.
  HostCopy(backend::Backend& backend, const View& view, bool apart) : backend_(&backend), target_(view) {
    if (!view.empty() && (apart || view.memory == Memory::device)) {
      copy_ = backend.allocate_host(view.bytes());
    }
  }

  View view() const { return copy_.data() == nullptr ? target_ : copy_.view(DType::f32, target_.rows, target_.cols); }
  // Copies what the original view holds now.
  void read() {
    if (copy_.data() != nullptr) {
      backend_->download(copy_.data(), target_);
    }
  }
  // Copies what was written back to the original view.
  void commit() {
    if (copy_.data() != nullptr) {
      backend_->upload(target_, copy_.data());
      backend_->wait();
    }
  }

 private:
  backend::Backend* backend_;
  View target_;
  Buffer copy_;
};

// All tensors of a checkpoint. If the optimizer is sharded, its whole state is gathered from all ranks, so every rank
// must have one for saving, also one that keeps nothing.
class HostTensors {
 public:
  enum Purpose : uint8_t {
    save,      // read() copies the state aside, so that training may go on while the copy is written
    save_not,  // read() gives this rank's shards to the others and keeps nothing
    load,      // what is written to the views takes effect with commit()
  };

  // host: communicator of all ranks, for host memory.
  HostTensors(backend::Backend& backend, const ModelState& weights, const optim::Optimizer& optimizer,
              const GradientUpdate& update, dist::Communicator& host, Purpose purpose);

  void read();                             // for saving; called by all ranks
  store::CheckpointTensors views() const;  // empty for save_not
  void commit();                           // for loading: copies this rank's part back to the backend's memory

 private:
  struct HostSlot {
    optim::Slot slot;
    HostCopy own;                           // the part that this rank keeps
    std::vector<dist::ShardPieces> shards;  // the part that each rank keeps; empty: all of it
    std::vector<float> whole;               // the whole slot, if it is sharded

    View view(int64_t flat) const;
  };

  dist::Communicator* host_;
  Purpose purpose_;
  int64_t flat_;
  HostCopy weights_, average_;
  std::vector<HostSlot> slots_;
};

}  // namespace tandem::train
