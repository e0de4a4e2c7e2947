// Sums over ranks on several hosts are made inside each host first, then between hosts, so that the traffic on the
// network does not grow with the number of ranks on a host.
//
// The order of additions is fixed: the ranks of a host, then the hosts. Rank l of host n owns shard l * hosts + n.
#pragma once

#include <memory>

#include "dist/process_group.h"

namespace tandem::dist {

// Every host must have the same number of ranks. Adds two communicators to the process group.
std::unique_ptr<Communicator> make_hierarchical_communicator(ProcessGroup& group);

}  // namespace tandem::dist
