// The live page: /, data.json, events (server-sent), metrics (Prometheus). Serves what was published last and nothing
// from the disk. What clients may take is bounded (http/server.h).
#pragma once

#include <memory>
#include <string>

namespace tandem::report {

struct WatchServerOptions {
  std::string address = "127.0.0.1";
  int port = 0;       // 0 = any free one
  std::string token;  // required from every client, fit for a URL; empty = none, which only a loopback address allows
  size_t most_listeners = 400;  // listeners to events; more must poll data.json
};

class WatchServer {
 public:
  // Binds and begins to serve. Fails with a one-line error if the address cannot be used.
  explicit WatchServer(WatchServerOptions options);
  ~WatchServer();  // ends every connection
  WatchServer(const WatchServer&) = delete;
  WatchServer& operator=(const WatchServer&) = delete;

  int port() const;
  std::string url() const;  // address of the page, with the token

  // `data`: forms.h's page_data(); `metrics`: to_prometheus().
  void publish(std::string data, std::string metrics);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::report
