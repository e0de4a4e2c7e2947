// What a checkpoint holds, in host memory: read from where the run computes, or to be written there.
#pragma once

#include <vector>

#include "store/checkpoint.h"
#include "train/gradient_update.h"
#include "train/model_state.h"

namespace tandem::train {

// A contiguous f32 view for use in host memory: the view itself if it lies there, else a copy of it. To write it, say
// so with commit().
class HostCopy {
 public:
  enum Purpose : uint8_t { read, write };  // to write: what it holds at first means nothing

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

  // Brings what was written to where the view lies.
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

// All of a checkpoint. With a sharded optimizer its whole state is gathered from all ranks, so every rank must make one
// to read.
class HostTensors {
 public:
  // host: all ranks, for host memory.
  HostTensors(backend::Backend& backend, const ModelState& weights, const optim::Optimizer& optimizer,
              const GradientUpdate& update, dist::Communicator& host, HostCopy::Purpose purpose);

  store::CheckpointTensors views() const;
  // After writing: brings this rank's part to where the run computes.
  void commit();

 private:
  struct HostSlot {
    optim::Slot slot;
    HostCopy own;                           // what this rank keeps
    std::vector<dist::ShardPieces> shards;  // what each rank keeps of the whole; empty: all of it
    std::vector<float> whole;               // if there are shards

    View view(int64_t flat) const;
  };

  int rank_;
  int64_t flat_;
  HostCopy weights_, average_;
  std::vector<HostSlot> slots_;
};

}  // namespace tandem::train
