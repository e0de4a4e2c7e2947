// A rank's end of a connection to the rendezvous server.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dist/message.h"
#include "dist/socket.h"
#include "dist/world.h"

namespace tandem::dist {

class RendezvousClient {
 public:
  // Tries the world's addresses in turn until one answers and both ends have proven the secret. `purpose` is "work" or
  // "heart". Fails at the deadline, if it is refused, or between two tries if `cancelled` returns true.
  RendezvousClient(
      const World& world, const std::string& purpose, Deadline deadline,
      const std::function<bool()>& cancelled = [] { return false; });

  void send(const Message& message);
  // Returns the next message, or nothing if none comes before the deadline. Fails if the connection is closed.
  std::optional<Message> receive(Deadline deadline);
  // Returns the answer to a request; an Error if it does not come in time.
  Message ask(const Message& request, Deadline deadline);

  // Ends a wait under way and all later calls with an Error. Any thread may call it.
  void shut_down() { dist::shut_down(socket_); }

  const Socket& socket() const { return socket_; }

 private:
  bool try_address(const World& world, const std::string& host, int port, const std::string& purpose,
                   Deadline deadline);

  Socket socket_;
  MessageReader in_;
  Session session_;
};

}  // namespace tandem::dist
