// The ranks that a launcher has started, and where they meet.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::dist {

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the workers of this host
  int local_size = 1;
  int node = 0;  // number of this host
  int nodes = 1;
  std::string host;                // this host's name, as messages give it
  std::vector<std::string> hosts;  // by rank, if known; used to name a rank that does not join
  // Rank 0 listens at "address[,address...]:port"; the addresses are tried in this order. If the port is 0 or the
  // socket is inherited, the launcher must tell the other ranks where rank 0 is.
  std::string rendezvous;
  int listener = -1;                 // rank 0: an inherited socket that already listens; join_process_group() takes it
  std::string secret;                // the same on all ranks; never sent
  std::string started_by = "alone";  // "alone", "tandem launch", "mpirun", "srun", "torchrun"

  bool alone() const { return size == 1; }
};

// Reads the first of these that is set:
//   TANDEM_RANK ... (from `tandem launch`), torchrun's RANK ..., mpirun's OMPI_COMM_WORLD_RANK ..., srun's SLURM_*.
// TANDEM_RENDEZVOUS (host:port) overrides what is derived from a job's number and host list. The secret is given
// (secret.h); ranks on several hosts without one are an Error, and those of one host share a key of their user.
// Incomplete or contradictory variables are an Error. Without any variable there is one rank.
World world_from_environment();

// An environment variable; an unset and an empty variable are the same.
std::string variable(const std::string& name);

// A variable that must be a whole number in [0, 2^31); if it is not, or is missing, the Error names it.
int number_variable(const std::string& name);
std::optional<int> optional_number_variable(const std::string& name);

// The first host in SLURM's list: "gpu[03-06,9],login" gives "gpu03".
std::string first_slurm_host(const std::string& list);

// SLURM's task counts by node: "2(x3),1" gives 2 2 2 1. Fails for anything else, and for more than 2^20 nodes.
std::vector<int> slurm_tasks(const std::string& list);

// The hosts in an Open MPI address: "123.0;tcp://10.0.0.1,192.168.1.1:4000" gives "10.0.0.1,192.168.1.1"; else "".
std::string hosts_of_mpi_uri(const std::string& uri);

}  // namespace tandem::dist
