// Which of how many workers this process is, and where they meet.
#pragma once

#include <string>
#include <vector>

namespace tandem {

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the workers of this host
  int local_size = 1;
  int node = 0;  // number of this host
  int nodes = 1;
  std::string host;                // this host's name, as messages give it
  std::vector<std::string> hosts;  // by rank, where known: for naming a rank that does not come
  // Where rank 0 listens: "address[,address...]:port", tried in this order. Port 0 (rank 0 alone knows it) or an
  // inherited socket means that somebody else tells the others.
  std::string rendezvous;
  int listener = -1;                 // rank 0: a socket that listens there already (inherited, then owned by the team)
  std::string secret;                // the same on all ranks; never sent
  std::string started_by = "alone";  // "alone", "tandem launch", "mpirun", "srun", "torchrun"

  bool alone() const { return size == 1; }
};

// Reads, the first that is there going before the others:
//   TANDEM_RANK ... (from `tandem launch`), torchrun's RANK ..., mpirun's OMPI_COMM_WORLD_RANK ..., srun's SLURM_*.
// TANDEM_RENDEZVOUS (host:port) and TANDEM_SECRET go before what is derived from a job's number and host list.
// Variables that are set by halves or contradict each other are an Error. Without any: alone.
World world_from_environment();

// `size` ranks of this process, for tests: each thread calls join_team() with one of them.
std::vector<World> make_local_worlds(int size);

}  // namespace tandem
