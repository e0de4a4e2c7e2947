// All that a checkpoint holds, in host memory: read from where the run computes, or to be written there.
//
// With a sharded optimizer its whole state is gathered from all ranks, so every rank must make one to read.
#pragma once

#include <vector>

#include "store/checkpoint.h"
#include "train/gradient_update.h"
#include "train/host_copy.h"
#include "train/model_state.h"

namespace tandem::train {

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
