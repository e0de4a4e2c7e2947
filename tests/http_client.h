// A client for HTTP that can also send what a browser would never send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace tandem::testing {

// For tests that hold hundreds of connections.
inline void allow_many_files() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
}

// A connected socket, or -1. `flags` are those of socket().
inline int connect_to(int port, const std::string& address = "127.0.0.1", int flags = 0) {
  const bool v6 = address.find(':') != std::string::npos;
  sockaddr_in6 to6{};
  sockaddr_in to4{};
  to6.sin6_family = AF_INET6;
  to4.sin_family = AF_INET;
  to6.sin6_port = to4.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(),
            v6 ? static_cast<void*>(&to6.sin6_addr) : static_cast<void*>(&to4.sin_addr));
  const int socket = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  const auto* to = v6 ? reinterpret_cast<const sockaddr*>(&to6) : reinterpret_cast<const sockaddr*>(&to4);
  if (connect(socket, to, v6 ? sizeof(to6) : sizeof(to4)) != 0 && errno != EINPROGRESS) {
    close(socket);
    return -1;
  }
  return socket;
}

// One connection, byte by byte. Waits ten seconds for the server at most.
class HttpClient {
 public:
  explicit HttpClient(int port, const std::string& address = "127.0.0.1") : socket_(connect_to(port, address)) {
    const timeval limit{10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~HttpClient() { close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return socket_ >= 0; }
  // Returns whether the server took all of it; one that refuses a request may not read it to its end.
  bool send(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text);
  }
  // Reads until `part` has come behind what was taken, or no more comes.
  std::string read_until(const std::string& part) {
    while (seen_.find(part) == std::string::npos && read_more()) {
    }
    return seen_;
  }
  std::string read_to_end() {
    while (read_more()) {
    }
    return seen_;
  }
  void forget() { seen_.clear(); }  // what was read so far

 private:
  bool read_more() {
    char buffer[65536];
    const ssize_t got = read(socket_, buffer, sizeof(buffer));
    seen_.append(buffer, got > 0 ? static_cast<size_t>(got) : 0);
    return got > 0;
  }

  int socket_;
  std::string seen_;
};

struct HttpAnswer {
  int status = 0;  // 0: none came
  std::string head, body;

  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    const size_t begin = at + name.size() + 4;
    return at == std::string::npos ? "" : head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

// What one connection answers to these bytes until it is closed.
inline HttpAnswer answer_to(int port, const std::string& request, const std::string& address = "127.0.0.1") {
  HttpClient client(port, address);
  client.send(request);
  const std::string all = client.read_to_end();
  const size_t end = all.find("\r\n\r\n");
  if (!all.starts_with("HTTP/1.1 ") || end == std::string::npos) {
    return {};
  }
  return {std::atoi(all.c_str() + 9), all.substr(0, end + 2), all.substr(end + 4)};
}

// `lines`: more lines of the head, each with its end.
inline std::string request(const std::string& path, const std::string& lines = "", const std::string& method = "GET",
                           const std::string& host = "localhost") {
  return method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + lines + "\r\n";
}

inline HttpAnswer get(int port, const std::string& path, const std::string& lines = "") {
  return answer_to(port, request(path, lines));
}

}  // namespace tandem::testing
