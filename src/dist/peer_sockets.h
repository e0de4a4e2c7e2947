// Connections from one rank to all others, for bulk data.
//
// Every rank listens at one port. It publishes its address and a nonce through the store, and connects to the ranks
// below it. The one that connects sends its rank (10 digits) and a proof of the secret over both nonces, the other
// answers with a proof of its own; the connection is then handed on as it is. Whoever else connects to the port is
// closed and logged, and never counts.
#pragma once

#include <string>
#include <vector>

#include "dist/socket.h"

namespace gloo::rendezvous {
class Store;
}

namespace tandem::dist {

// What rank `rank` of `size` publishes about itself, and what it needs for it.
class PeerPort {
 public:
  // `address` is how the peers reach this rank: a host name, an IP address or a network interface.
  PeerPort(int rank, int size, const std::string& address, std::string secret);

  const std::string& address() const { return address_; }  // without a network interface's name
  std::vector<char> published() const;
  // By rank, once `published` has the values of all ranks; this rank's own is closed.
  std::vector<Socket> connect_all(const std::vector<std::vector<char>>& published, Deadline deadline);

 private:
  struct Peer {
    std::string address;
    int port = 0;
    std::string nonce;
  };
  struct Guest;  // a connection that has proven nothing yet

  std::string proof_of(const char* what, int from, int to) const;
  Socket connect_below(int peer, Deadline deadline) const;
  void accept_above(Deadline deadline);
  bool greet(Guest& guest);

  const int rank_, size_;
  std::string address_;
  const std::string secret_;
  const std::string nonce_;
  Socket listener_;
  std::vector<Peer> peers_;
  std::vector<Socket> sockets_;
};

}  // namespace tandem::dist
