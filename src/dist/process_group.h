// A process group: workers that have found each other, and that notice when one of them is gone.
//
// Rank 0 runs a small server that the others join (rendezvous_server.h). Every rank has a separate thread and socket
// for heartbeats, so that a long collective, a validation or a slow checkpoint is not taken for a death.
//
// If a rank dies, stops, is cut off or calls stop(), every other rank's failure() names it and the cause within 10 s;
// the calls of its communicators, current and later ones, end with an Error of that text; the functions given to
// on_failure() run; and a process that has not ended `exit_after` later is ended with the text on standard error.
//
// Functions may be called by one thread at a time; failure(), on_failure() and stop() by any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/world.h"
#include "tensor/stream.h"

namespace tandem::dist {

// Properties that must agree for ranks to work together. An Error names the one that differs, and the host.
struct Identity {
  std::string version;     // the program's version; equal everywhere
  std::string config;      // hash or text; equal everywhere
  std::string data;        // hash; equal everywhere
  std::string checkpoint;  // "<step> <hash>" or empty; ranks with the same step must have the same hash
  std::string device;      // a GPU's UUID or empty; two ranks of one host must not have the same
};

struct RankInfo {
  int rank = 0;
  int node = 0;
  std::string host;       // its name
  std::string address;    // the address at which the other ranks reach it
  std::string interface;  // the network interface that has this address
};

struct ProcessGroupOptions {
  std::chrono::milliseconds join_timeout{120'000};          // longest time for all ranks to join
  std::chrono::milliseconds heartbeat{1'000};               // time between two heartbeats
  std::chrono::milliseconds silence{3'000};                 // a rank silent for so long is dead
  std::chrono::milliseconds collective_timeout{1'800'000};  // longest wait for the next piece: the last resort
  std::chrono::milliseconds exit_after{3'000};  // a process still running so long after a failure is ended; 0: never
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;  // without leave(), the others learn that this rank ended early

  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  int local_rank() const { return world_.local_rank; }
  int local_size() const { return world_.local_size; }
  int node() const { return world_.node; }
  int nodes() const { return world_.nodes; }
  const World& world() const { return world_; }
  const std::vector<RankInfo>& ranks() const { return infos_; }  // by rank
  std::string name_of(int rank) const;                           // "rank 3 on host b"

  // The collectives of all ranks, over Gloo. Errors name rank and host.
  virtual Communicator& communicator() = 0;

  // A communicator of some of the ranks with connections of its own: its rank i is ranks[i]. All of these ranks call
  // this with the same name, which is used once. It lives as long as the process group.
  virtual Communicator& add_communicator(const std::string& name, const std::vector<int>& ranks) = 0;

  // Sends the text of rank `root` to all ranks; called by all.
  std::string broadcast(const std::string& text, int root);
  // All ranks' texts, by rank; called by all.
  std::vector<std::string> gather(const std::string& text);

  // `action` is called once with failure(), from a thread of the process group or, after stop(), from its caller; at
  // once if the process group has already failed. It must not wait for other functions of this class.
  virtual void on_failure(std::function<void(const std::string& reason)> action) = 0;

  virtual std::string failure() const = 0;  // empty while all is well

  // Ends the work of all ranks: failure() becomes "rank R on host H: <reason>" on all of them. For an error that
  // occurred on this rank only.
  virtual void stop(const std::string& reason) = 0;

  // The orderly end, called by all: returns when every rank has called it. Afterwards a silent rank is not taken for
  // dead, and the communicators are gone.
  virtual void leave() = 0;

 protected:
  World world_;
  std::vector<RankInfo> infos_;
};

// Returns when all ranks have joined; otherwise an Error names the missing ranks, or the difference.
std::unique_ptr<ProcessGroup> join_process_group(const World& world, const Identity& identity,
                                                 const ProcessGroupOptions& options = {});

// Sums over ranks on several hosts are made inside each host first, then between hosts, so that the traffic on the
// network does not grow with the number of ranks on a host. The order of additions is fixed: the ranks of a host, then
// the hosts. Rank l of host n owns shard l * hosts + n. Every host must have the same number of ranks. Adds two
// communicators to the process group.
std::unique_ptr<Communicator> make_hierarchical_communicator(ProcessGroup& group);

// Communicators for buffers on GPUs. Built with CUDA and NCCL: dist/cuda/; without: dist/no_nccl.cc.
//
// The work runs on a stream of its own in the order of the calls, each call after the earlier work of the compute
// stream; waiting for a handle makes the compute stream wait for it. So calls may be recorded together with the
// computation.

// Empty if NCCL can be used; otherwise the reason, without a full stop.
std::string why_no_nccl();

// Communicates directly between GPUs. It is aborted if the process group fails.
std::unique_ptr<Communicator> make_nccl_communicator(ProcessGroup& group, DeviceStream compute);

// Communicates through pinned host memory and `host`, or the process group's own communicator if `host` is null.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, ProcessGroup& group,
                                                       DeviceStream compute);

}  // namespace tandem::dist
