// Ranks over TCP, carried by Gloo.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "dist/communicator.h"

namespace gloo::rendezvous {
class Store;
}

namespace tandem {

// Where ranks leave their addresses for each other. One store serves one communicator.
std::shared_ptr<gloo::rendezvous::Store> make_memory_store();  // ranks that are threads of one process share the object
std::shared_ptr<gloo::rendezvous::Store> make_file_store(const std::filesystem::path& empty_directory);

// Returns when all ranks have met and every pair of them is connected. `address` is what the peers reach this rank by:
// a host name, an IP address or a network interface. `timeout` is the longest time to wait for a peer, here to come and
// later for the next piece (256 KiB) of what it owes; a long transfer that moves is not a failure.
std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout);

}  // namespace tandem
