// The TCP socket functions that ranks need.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"

namespace tandem::dist {

using Socket = Descriptor;

// Shuts down both directions and wakes up threads that wait on the socket, but keeps the descriptor open.
void shut_down(const Socket& socket);

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline Deadline from_now(Clock::duration time) { return Clock::now() + time; }

// Milliseconds until the deadline, for poll(): at least 0.
int milliseconds_until(Deadline deadline);

// Listens on all addresses of this host, or only on the loopback. Port 0: any free one.
Socket listen_on(bool loopback_only, int port);
// Listens at any free port of one of this host's addresses, or fails with the system's reason.
Socket listen_at(const std::string& address);
int port_of(const Socket& listener);

// Messages are sent before bulk data.
enum class Use { messages, bulk };
// Connects, or fails with the system's reason. The socket is non-blocking.
Socket connect_to(const std::string& host, int port, Deadline deadline, Use use = Use::messages);
// The next pending connection; a closed Socket if there is none.
Socket accept_from(const Socket& listener, Use use = Use::messages);

// Warns of those who connect without knowing the secret, once for each of the first few addresses.
class Strangers {
 public:
  void warn(const std::string& address);

 private:
  std::set<std::string> seen_;
};

// Numeric addresses of the two ends ("10.0.0.2"); empty if the connection is gone.
std::string local_address(const Socket& socket);
std::string peer_address(const Socket& socket);
bool is_loopback(const std::string& address);
// This host's addresses, and the network interface that has each.
struct InterfaceAddress {
  std::string interface, address;
  int family = 0;  // AF_INET or AF_INET6
  bool up = false;
};
std::vector<InterfaceAddress> own_addresses();
// The network interface that has this address, or "".
std::string interface_of(const std::string& address);

// The parts of "address[,address...]:port"; anything else is an Error. IPv6 addresses are in brackets.
struct Endpoint {
  std::vector<std::string> hosts;
  int port = 0;
};
Endpoint parse_endpoint(const std::string& text);

}  // namespace tandem::dist
