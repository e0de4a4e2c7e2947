#include "report/watch_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "core/error.h"

namespace tandem::report {

namespace {

using namespace std::chrono_literals;

// One connection, byte by byte: what a browser would never send.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void send(const std::string& text) const { EXPECT_EQ(write(socket_, text.data(), text.size()), std::ssize(text)); }
  // Reads until `part` has come, or no more comes.
  std::string read_until(const std::string& part) {
    char buffer[4096];
    while (seen_.find(part) == std::string::npos) {
      const ssize_t got = read(socket_, buffer, sizeof(buffer));
      if (got <= 0) {
        break;
      }
      seen_.append(buffer, static_cast<size_t>(got));
    }
    return seen_;
  }

 private:
  int socket_;
  bool connected_ = false;
  std::string seen_;
};

std::string answer_to(int port, const std::string& request) {
  RawClient client(port);
  client.send(request);
  return client.read_until("\r\n\r\n");
}

std::string get(const std::string& path, const std::string& host = "localhost") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, host);
}

int64_t memory_kb() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::stoll(line.substr(6));
    }
  }
  return -1;
}

TEST(WatchServer, ServesThePageAndItsData) {
  WatchServer server({});
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/data.json")->status, 503);  // nothing was published yet
  server.publish("{\"x\":1}", "tandem_step 1\n");
  const httplib::Result page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_TRUE(page->body.starts_with("<!DOCTYPE html>"));
  EXPECT_NE(page->get_header_value("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  const httplib::Result data = client.Get("/data.json");
  EXPECT_EQ(data->body, "{\"x\":1}");
  EXPECT_EQ(client.Get("/data.json", {{"If-None-Match", data->get_header_value("ETag")}})->status, 304);
  EXPECT_EQ(client.Get("/metrics")->body, "tandem_step 1\n");
  EXPECT_EQ(client.Head("/")->status, 200);
  server.publish("{\"x\":2}", "");
  EXPECT_EQ(client.Get("/data.json", {{"If-None-Match", data->get_header_value("ETag")}})->body, "{\"x\":2}");
}

TEST(WatchServer, HasNothingFromTheDisk) {
  WatchServer server({});
  server.publish("{}", "");
  for (const char* path :
       {"/../../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
        "/data.json/../../etc/passwd", "/config.toml", "/metrics/0.jsonl", "/\\..\\..", "/%00", "/favicon.ico"}) {
    const std::string answer = answer_to(server.port(), get(path));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400")) << path << ": " << answer;
    EXPECT_EQ(answer.find("root:"), std::string::npos);
  }
}

TEST(WatchServer, RefusesOtherHostsMethodsAndGarbage) {
  WatchServer server({});
  server.publish("{}", "");
  EXPECT_TRUE(answer_to(server.port(), get("/data.json", "evil.example")).starts_with("HTTP/1.1 403"));
  EXPECT_TRUE(answer_to(server.port(), get("/data.json", "127.0.0.1.evil.example:80")).starts_with("HTTP/1.1 403"));
  EXPECT_TRUE(answer_to(server.port(), "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 403"));  // no Host at all
  EXPECT_TRUE(answer_to(server.port(), "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
                  .starts_with("HTTP/1.1 405"));
  answer_to(server.port(), std::string("\x16\x03\x01 garbage\r\n\r\n"));
  answer_to(server.port(), "GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(answer_to(server.port(), get("/")).starts_with("HTTP/1.1 200"));
}

TEST(WatchServer, WantsItsToken) {
  EXPECT_THROW(WatchServer({.address = "0.0.0.0", .port = 0, .token = ""}), Error);
  WatchServer server({.address = "0.0.0.0", .port = 0, .token = "0123456789abcdef"});
  server.publish("{}", "x 1\n");
  httplib::Client client("127.0.0.1", server.port());
  for (const char* path : {"/", "/data.json", "/metrics", "/events", "/?token=", "/?token=0123456789abcdeX"}) {
    EXPECT_EQ(client.Get(path)->status, 401) << path;
  }
  EXPECT_EQ(client.Get("/data.json?token=0123456789abcdef")->status, 200);
  EXPECT_EQ(client.Get("/metrics", {{"Authorization", "Bearer 0123456789abcdef"}})->status, 200);
  EXPECT_NE(server.url().find("?token=0123456789abcdef"), std::string::npos);
}

TEST(WatchServer, TellsItsListeners) {
  WatchServer server({});
  server.publish("{}", "");
  RawClient client(server.port());
  client.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n");
  const std::string head = client.read_until("data: 1\n\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos) << head;
  EXPECT_NE(head.find("event: changed\n"), std::string::npos) << head;
  server.publish("{}", "");
  EXPECT_NE(client.read_until("data: 2\n\n").find("data: 2\n\n"), std::string::npos);
}

TEST(WatchServer, PastTheLimitListenersAreToldToAsk) {
  WatchServer server({.address = "127.0.0.1", .port = 0, .token = "", .most_listeners = 1});
  server.publish("{}", "");
  RawClient first(server.port());
  first.send(get("/events"));
  first.read_until("data: 1");
  EXPECT_TRUE(answer_to(server.port(), get("/events")).starts_with("HTTP/1.1 503"));
  EXPECT_TRUE(answer_to(server.port(), get("/data.json")).starts_with("HTTP/1.1 200"));
}

TEST(WatchServer, SurvivesManyAndSlowClients) {
  WatchServer server({});
  server.publish(std::string(1'500'000, ' '), "");
  std::vector<std::unique_ptr<RawClient>> listeners, slow;
  const auto connect = [&](auto& clients, int count, const char* path) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<RawClient>(server.port()));
      ASSERT_TRUE(clients.back()->connected());
      clients.back()->send(get(path));
    }
  };
  connect(listeners, 200, "/events");
  for (const auto& client : listeners) {
    client->read_until("data: 1\n\n");
  }
  const int64_t before = memory_kb();
  connect(slow, 100, "/data.json");  // which never read
  for (int version = 2; version <= 10; ++version) {
    server.publish(std::string(1'500'000, ' '), "");
    std::this_thread::sleep_for(20ms);
  }
  for (const auto& client : listeners) {
    EXPECT_NE(client->read_until("data: 10\n\n").find("data: 10\n\n"), std::string::npos);
  }
  httplib::Client quick("127.0.0.1", server.port());
  EXPECT_EQ(quick.Get("/data.json")->body.size(), 1'500'000U);
  EXPECT_LT(memory_kb() - before, 100'000);
}

TEST(WatchServer, EndsAtOnceWithClientsConnected) {
  auto server = std::make_unique<WatchServer>(WatchServerOptions{});
  server->publish("{}", "");
  RawClient listener(server->port()), silent(server->port());
  listener.send(get("/events"));
  listener.read_until("data: 1\n\n");
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

TEST(WatchServer, SaysThatAPortIsTaken) {
  const WatchServer server({});
  EXPECT_THROW(WatchServer({.address = "127.0.0.1", .port = server.port(), .token = ""}), Error);
  EXPECT_THROW(WatchServer({.address = "127.0.0.1.example", .port = 0, .token = "0123456789abcdef"}), Error);
}

}  // namespace

}  // namespace tandem::report
