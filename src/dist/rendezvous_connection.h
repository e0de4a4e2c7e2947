// One connection as the rendezvous server sees it.
#pragma once

#include "dist/authentication.h"
#include "dist/rendezvous_server.h"

namespace tandem::dist {

struct RendezvousServer::Connection {
  enum class Kind { unproven, work, heartbeat };

  Connection(Socket connected, size_t limit) : socket(std::move(connected)), in(limit), nonce(random_token()) {}

  Socket socket;
  MessageReader in;
  std::string out;  // bytes to send
  std::string nonce;
  std::string from = peer_address(socket);
  Kind kind = Kind::unproven;
  int rank = -1;
  Deadline since = std::chrono::steady_clock::now();
  Deadline last_heard = since;
  std::optional<std::string> wanted;  // the key that the peer waits for
  Deadline wanted_until;
  bool closing = false;  // to be closed once `out` is sent
};

}  // namespace tandem::dist
