// Communicators for buffers on GPUs. Built with CUDA and NCCL: dist/cuda/; without: dist/no_nccl.cc.
//
// The work runs on a stream of its own in the order of the calls, each call after the earlier work of the compute
// stream; waiting for a handle makes the compute stream wait for it. So calls may be recorded together with the
// computation.
#pragma once

#include <memory>
#include <string>

#include "dist/process_group.h"
#include "tensor/stream.h"

namespace tandem::dist {

// Empty if NCCL can be used; otherwise the reason, without a full stop.
std::string why_no_nccl();

// Between the GPUs themselves. It is aborted if the process group fails.
std::unique_ptr<Communicator> make_nccl_communicator(ProcessGroup& group, DeviceStream compute);

// Through pinned host memory and `host`, or the process group's own communicator if that is null.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, ProcessGroup& group,
                                                       DeviceStream compute);

}  // namespace tandem::dist
