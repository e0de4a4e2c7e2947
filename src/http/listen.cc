#include "http/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "core/error.h"

namespace tandem::http {

Descriptor listen_at(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &first) != 0) {
    first = nullptr;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(first, [](addrinfo* list) {
    if (list != nullptr) {
      freeaddrinfo(list);
    }
  });
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    Descriptor listener(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1, no = 0;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at->ai_family == AF_INET6) {
      setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    }
    if (bind(listener.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(listener.get(), SOMAXCONN) == 0) {
      return listener;
    }
  }
  fail("cannot listen on {} port {}: the port is taken, or the address is not one of this machine's", address, port);
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace tandem::http
