// All that a checkpoint holds, in host memory: read from where the run computes, or written back to it.
//
// With a sharded optimizer the whole moments are gathered from all ranks, so every rank must make one to read.
#pragma once

#include <vector>

#include "optim/adam.h"
#include "store/checkpoint.h"
#include "train/host_copy.h"
#include "train/model_state.h"
#include "train/summed_update.h"

namespace tandem {

class HostTensors {
 public:
  // team: null where one rank trains alone; host: the ranks, for host memory.
  HostTensors(Backend& backend, const ModelState& weights, const Adam& adam, TeamUpdate* team, Communicator& host,
              HostCopy::Purpose purpose);
  ~HostTensors() noexcept(false);  // after writing, brings this rank's part to where the run computes
  HostTensors(const HostTensors&) = delete;
  HostTensors& operator=(const HostTensors&) = delete;

  CheckpointTensors views() const;

 private:
  bool sharded() const { return team_ != nullptr && team_->sharded(); }

  TeamUpdate* team_;
  HostCopy::Purpose purpose_;
  int64_t flat_;
  HostCopy weights_, m_, v_, average_;    // m_, v_: this rank's own moments
  std::vector<float> whole_m_, whole_v_;  // [padded]; with a sharded optimizer
};

}  // namespace tandem
