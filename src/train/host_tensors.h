// All that a checkpoint holds, in host memory: read from where the run computes, or to be written there.
//
// With a sharded optimizer its whole state is gathered from all ranks, so every rank must make one to read.
#pragma once

#include <vector>

#include "store/checkpoint.h"
#include "train/gradient_update.h"
#include "train/host_copy.h"
#include "train/model_state.h"

namespace tandem {

class HostTensors {
 public:
  // host: all ranks, for host memory.
  HostTensors(Backend& backend, const ModelState& weights, const Optimizer& optimizer, const GradientUpdate& update,
              Communicator& host, HostCopy::Purpose purpose);

  CheckpointTensors views() const;
  // After writing: brings this rank's part to where the run computes.
  void commit();

 private:
  struct HostSlot {
    Slot slot;
    HostCopy own;                     // what this rank keeps
    std::vector<ShardPieces> shards;  // what each rank keeps of the whole; empty: all of it
    std::vector<float> whole;         // if there are shards

    View view(int64_t flat) const;
  };

  int rank_;
  int64_t flat_;
  HostCopy weights_, average_;
  std::vector<HostSlot> slots_;
};

}  // namespace tandem
