#include "dist/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/log.h"
#include "core/parse.h"

namespace tandem::dist {
namespace {

constexpr size_t kMostStrangers = 3;  // addresses that are named
constexpr int kBacklog = 4096;        // connections to be accepted: strangers must not crowd out the ranks

void set_options(const Socket& socket, Use use) {
  const int on = 1;
  const int first = 6;  // the highest that needs no privilege
  const int low_delay = IPTOS_LOWDELAY;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (use == Use::bulk) {
    return;
  }
  setsockopt(socket.get(), IPPROTO_IP, IP_TOS, &low_delay, sizeof low_delay);
  setsockopt(socket.get(), SOL_SOCKET, SO_PRIORITY, &first, sizeof first);
}

std::string text_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
      char text[INET_ADDRSTRLEN];
      return inet_ntop(AF_INET, six.sin6_addr.s6_addr + 12, text, sizeof text);
    }
  }
  char text[NI_MAXHOST];
  const int result = getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, text, sizeof text,
                                 nullptr, 0, NI_NUMERICHOST);
  return result == 0 ? text : "";
}

template <class GetName>
std::string address_by(const GetName& get_name, const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return get_name(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 ? text_of(address) : "";
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, FreeAddresses> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(result == 0, "{} does not resolve ({})", host, gai_strerror(result));
  return std::unique_ptr<addrinfo, FreeAddresses>(found);
}

// Returns 0 or the system's error.
int try_connect(const Socket& socket, const addrinfo& address, Deadline deadline) {
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  pollfd event{socket.get(), POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&event, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// An IPv6 socket takes IPv4 connections too; a system without IPv6 uses an IPv4 socket.
bool try_listen(const Socket& socket, int family, bool loopback_only, int port) {
  const int on = 1;
  const int off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t size = 0;
  if (family == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six = {.sin6_family = AF_INET6,
           .sin6_port = htons(port),
           .sin6_flowinfo = 0,
           .sin6_addr = in6addr_any,
           .sin6_scope_id = 0};
    size = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    four.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    size = sizeof four;
  }
  return bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(socket.get(), kBacklog) == 0;
}

}  // namespace

void shut_down(const Socket& socket) { shutdown(socket.get(), SHUT_RDWR); }

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

Socket listen_on(bool loopback_only, int port) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    if (family == AF_INET6 && loopback_only) {
      continue;
    }
    Socket listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (listener.open() && try_listen(listener, family, loopback_only, port)) {
      return listener;
    }
    error = errno;
  }
  fail("cannot listen on port {}: {}; is another run using it? Port 0 chooses a free one", port, std::strerror(error));
}

Socket listen_at(const std::string& address) {
  const auto addresses = resolve(address, 0);
  int error = 0;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Socket listener(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (listener.open() && bind(listener.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        listen(listener.get(), kBacklog) == 0) {
      return listener;
    }
    error = errno;
  }
  fail("cannot listen at {}: {}", address, std::strerror(error));
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  require(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "no such socket: {}",
          std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket connect_to(const std::string& host, int port, Deadline deadline, Use use) {
  const auto addresses = resolve(host, port);
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Socket connection(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = connection.open() ? try_connect(connection, *address, deadline) : errno;
    if (error == 0) {
      set_options(connection, use);
      return connection;
    }
  }
  fail("{}:{}: {}", host, port, std::strerror(error));
}

Socket accept_from(const Socket& listener, Use use) {
  Socket connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.open()) {
    set_options(connection, use);
  }
  return connection;
}

void Strangers::warn(const std::string& address) {
  if (!address.empty() && seen_.size() < kMostStrangers && seen_.insert(address).second) {
    log::warning("{} connects to a port of this run without knowing its secret, and is refused", address);
  }
}

std::string local_address(const Socket& socket) { return address_by(getsockname, socket); }
std::string peer_address(const Socket& socket) { return address_by(getpeername, socket); }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

std::vector<InterfaceAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {};
  }
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) {
      sockaddr_storage storage{};
      std::memcpy(&storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      all.push_back({entry->ifa_name, text_of(storage), family, (entry->ifa_flags & IFF_UP) != 0});
    }
  }
  freeifaddrs(list);
  return all;
}

std::string interface_of(const std::string& address) {
  for (const InterfaceAddress& own : own_addresses()) {
    if (own.address == address) {
      return own.interface;
    }
  }
  return "";
}

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  Endpoint endpoint;
  const auto bad = [&] { fail("'{}' is not an address to meet at: give host:port", text); };
  if (colon == std::string::npos) {
    bad();
  }
  endpoint.port = parse_number<int>(std::string_view(text).substr(colon + 1)).value_or(-1);
  if (endpoint.port < 0 || endpoint.port > 65535) {
    bad();
  }
  for (std::string host : split(text.substr(0, colon) + ',', ',')) {  // with the comma an empty last part counts
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    if (host.empty()) {
      bad();
    }
    endpoint.hosts.push_back(host);
  }
  return endpoint;
}

}  // namespace tandem::dist
