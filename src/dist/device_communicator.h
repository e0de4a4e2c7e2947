// Ranks whose buffers lie on GPUs. Built with CUDA and NCCL: dist/cuda/; without: dist/no_nccl.cc.
//
// The work runs on a stream of its own, in the order of the calls, each after what the compute stream was given before;
// waiting for a handle puts the compute stream behind it. So calls may be recorded together with the computation.
#pragma once

#include <memory>
#include <string>

#include "dist/team.h"
#include "tensor/stream.h"

namespace tandem {

// Empty where NCCL can be used; otherwise the reason, one sentence without its full stop.
std::string why_no_nccl();

// Between the GPUs themselves. Aborted when the team fails.
std::unique_ptr<Communicator> make_nccl_communicator(Team& team, DeviceStream compute);

// Through pinned host memory and `host`, or the team's own communicator where that is null.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, Team& team,
                                                       DeviceStream compute);

}  // namespace tandem
