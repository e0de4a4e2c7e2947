// The front of every HTTP server here. One thread serves all connections (libmicrohttpd with epoll), so a client costs
// a socket and a bounded buffer. What a client may take, in bytes and in time, is bounded before anything is known of
// it; whoever sends no whole request gives way to others first.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::http {

struct Limits {
  // Connections at once, and no more than half of the files that may be open (ulimit -n). One more, and the one is
  // closed that has waited longest without a whole request; a request that is being answered never is. There is no
  // limit for an address: behind a tunnel or a proxy all have the same.
  size_t connections = 512;
  // Memory of a connection for the request's first line and its headers. Each header also costs a fixed part of it, so
  // their number is bounded as well (a few hundred).
  size_t header_bytes = 32 << 10;
  size_t body_bytes = 1 << 20;                        // of a request
  std::chrono::milliseconds request_time{10'000};     // from the connection, or the last reply, to a whole request
  std::chrono::milliseconds reply_time{60'000};       // until a reply, or a part of a stream, is sent
  std::chrono::milliseconds longest_silence{15'000};  // of a stream
};

using Values = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method, path;  // the path is decoded and has no query
  Values query, headers;
  std::string body;

  std::string header(const std::string& name) const;  // the first of this name, in any case; empty if there is none
  std::string parameter(const std::string& name) const;
};

using Text = std::shared_ptr<const std::string>;  // shared by all replies in progress

// A body that comes in parts. Both are called on the server's thread and must be quick.
struct Stream {
  // The next part; empty: not yet, ask again after Server::wake(); nothing: that was all. Destroyed when the client is
  // gone.
  std::function<std::optional<std::string>()> next;
  std::string sign_of_life;  // sent after longest_silence; empty: none
};

struct Reply {
  int status = 200;
  Values headers = {};
  Text body = nullptr;
  Stream stream = {};  // instead of a body, if it has `next`
};

Reply plain(int status, const std::string& sentence, Values headers = {});  // one line of text

// Called on the server's thread, so a handler must be quick: what takes longer belongs into another thread and a
// stream. An exception becomes status 500.
using Handler = std::function<Reply(const Request&)>;

struct Options {
  std::string address = "127.0.0.1";
  int port = 0;  // 0 = any free one
  Limits limits = {};
  Values headers = {};                         // of every reply
  std::map<std::string, Handler> routes = {};  // by path; GET handlers answer HEAD as well
  // Called before the body is received, which `request` lacks; what it returns refuses the request.
  std::function<std::optional<Reply>(const Request& request)> refusal = nullptr;
};

class Server {
 public:
  // Binds and begins to serve. Fails with a one-line error if the address cannot be used.
  explicit Server(Options options);
  ~Server();  // ends every connection at once
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  void wake();  // asks every silent stream for its next part; from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::http
