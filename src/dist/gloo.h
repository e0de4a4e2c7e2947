// Collectives over TCP, carried out by Gloo.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "dist/communicator.h"

namespace gloo::rendezvous {
class Store;
}

namespace tandem::dist {

// Through a store the ranks of one communicator learn each other's addresses.
std::shared_ptr<gloo::rendezvous::Store> make_memory_store();  // ranks that are threads of one process share the object
std::shared_ptr<gloo::rendezvous::Store> make_file_store(const std::filesystem::path& empty_directory);

// Returns when all ranks have met and every pair of them is connected. `address` is how the peers reach this rank: a
// host name, an IP address or a network interface. `timeout` is the longest wait for a peer, first to join and later
// for the next piece (256 KiB) that it has to send; a long transfer that makes progress is not a failure.
std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout);

}  // namespace tandem::dist
