// Reads a launcher's environment variables.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::dist {

// An unset and an empty variable are the same.
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
