#include "report/watch_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "http_client.h"

namespace tandem::report {

namespace {

using namespace std::chrono_literals;
using testing::answer_to;
using testing::get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::request;

constexpr const char* kToken = "0123456789abcdef";

HttpAnswer of_host(int port, const std::string& host) {
  return answer_to(port, request("/data.json", "", "GET", host));
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
  const int port = server.port();
  EXPECT_EQ(get(port, "/data.json").status, 503);  // nothing was published yet
  EXPECT_EQ(get(port, "/metrics").body, "");
  server.publish("{\"x\":1}", "tandem_step 1\n");
  const HttpAnswer page = get(port, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.body.starts_with("<!DOCTYPE html>"));
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_NE(page.header("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page.header("X-Frame-Options"), "DENY");
  EXPECT_EQ(page.header("Cache-Control"), "no-store");
  const HttpAnswer data = get(port, "/data.json");
  EXPECT_EQ(data.body, "{\"x\":1}");
  EXPECT_EQ(data.header("Content-Type"), "application/json");
  const std::string seen = "If-None-Match: " + data.header("ETag") + "\r\n";
  EXPECT_EQ(get(port, "/data.json", seen).status, 304);
  EXPECT_EQ(get(port, "/data.json", seen).body, "");
  EXPECT_EQ(get(port, "/metrics").body, "tandem_step 1\n");
  const HttpAnswer head = answer_to(port, request("/", "", "HEAD"));
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), std::to_string(page.body.size()));
  EXPECT_EQ(head.body, "");
  server.publish("{\"x\":2}", "");
  EXPECT_EQ(get(port, "/data.json", seen).body, "{\"x\":2}");
}

TEST(WatchServer, HasNothingFromTheDisk) {
  WatchServer server({});
  server.publish("{}", "");
  for (const char* path : {"/../../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
                           "//etc/passwd", "/data.json/../../etc/passwd", "/config.toml", "/metrics/0.jsonl",
                           "/\\..\\..", "/%00", "/data.json%00.html", "/favicon.ico"}) {
    const HttpAnswer answer = get(server.port(), path);
    EXPECT_TRUE(answer.status == 404 || answer.status == 400) << path << ": " << answer.head;
    EXPECT_EQ(answer.body.find("root:"), std::string::npos);
  }
}

TEST(WatchServer, RefusesOtherHostsMethodsAndGarbage) {
  WatchServer server({});
  server.publish("{}", "");
  const int port = server.port();
  EXPECT_EQ(of_host(port, "evil.example").status, 403);
  EXPECT_EQ(of_host(port, "127.0.0.1.evil.example:80").status, 403);
  EXPECT_EQ(of_host(port, "localhost:1").status, 200);
  EXPECT_EQ(answer_to(port, "GET / HTTP/1.0\r\n\r\n").status, 403);  // no Host at all
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PRI"}) {
    EXPECT_EQ(answer_to(port, request("/", "", method)).status, 405) << method;
  }
  EXPECT_EQ(answer_to(port, request("/", "Content-Length: 100\r\n", "POST")).status, 405);  // without its body
  EXPECT_EQ(answer_to(port, request("/", "Content-Length: 1\r\n")).status, 413);
  EXPECT_EQ(get(port, "/").status, 200);
}

TEST(WatchServer, WantsItsToken) {
  EXPECT_THROW(WatchServer({.address = "0.0.0.0", .port = 0, .token = ""}), Error);
  WatchServer server({.address = "0.0.0.0", .port = 0, .token = kToken});
  server.publish("{}", "x 1\n");
  for (const char* path : {"/", "/data.json", "/metrics", "/events", "/nowhere", "/?token=", "/?token=0123456789abcdeX",
                           "/?token=0123456789abcdef0", "/?x=0123456789abcdef", "/?token=%00123456789abcdef"}) {
    EXPECT_EQ(get(server.port(), path).status, 401) << path;
  }
  EXPECT_EQ(get(server.port(), "/data.json?token=0123456789abcdef").status, 200);
  EXPECT_EQ(get(server.port(), "/metrics", "authorization: Bearer 0123456789abcdef\r\n").status, 200);
  EXPECT_EQ(get(server.port(), "/metrics", "Authorization: Bearer 0123456789abcdeX\r\n").status, 401);
  EXPECT_NE(server.url().find("?token=0123456789abcdef"), std::string::npos);
}

TEST(WatchServer, ListensOnAddressesOfIPv6) {
  std::ifstream interfaces("/proc/net/if_inet6");
  if (interfaces.peek() == std::ifstream::traits_type::eof()) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  WatchServer server({.address = "::1", .port = 0, .token = kToken});
  EXPECT_TRUE(server.url().starts_with("http://[::1]:")) << server.url();
  const HttpAnswer answer =
      answer_to(server.port(), request("/?token=0123456789abcdef", "", "GET", "[::1]:7117"), "::1");
  EXPECT_EQ(answer.status, 200);
  WatchServer both({.address = "::", .port = 0, .token = kToken});
  for (const char* address : {"::1", "127.0.0.1"}) {
    EXPECT_EQ(answer_to(both.port(), request("/?token=0123456789abcdef"), address).status, 200) << address;
  }
}

TEST(WatchServer, TellsItsListeners) {
  WatchServer server({});
  HttpClient client(server.port());
  client.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n");
  client.read_until("\r\n\r\n");
  server.publish("{}", "");
  const std::string head = client.read_until("data: 1\n\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos) << head;
  EXPECT_NE(head.find("event: changed\nid: 1\ndata: 1\n\n"), std::string::npos) << head;
  server.publish("{}", "");
  EXPECT_NE(client.read_until("data: 2\n\n").find("data: 2\n\n"), std::string::npos);
}

TEST(WatchServer, PastTheLimitListenersAreToldToAsk) {
  WatchServer server({.address = "127.0.0.1", .port = 0, .token = "", .most_listeners = 1});
  server.publish("{}", "");
  auto first = std::make_unique<HttpClient>(server.port());
  first->send(request("/events"));
  first->read_until("data: 1");
  const HttpAnswer answer = get(server.port(), "/events");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("Retry-After"), "5");
  EXPECT_EQ(get(server.port(), "/data.json").status, 200);
  first.reset();  // and one is free again, soon
  std::string seen;
  for (int tries = 0; tries < 40 && seen.find("data: 1") == std::string::npos; ++tries) {
    std::this_thread::sleep_for(50ms);
    HttpClient second(server.port());
    second.send(request("/events"));
    seen = second.read_until("\n\n");
  }
  EXPECT_NE(seen.find("data: 1"), std::string::npos) << seen;
}

TEST(WatchServer, SurvivesManyAndSlowClients) {
  testing::allow_many_files();
  WatchServer server({});
  server.publish(std::string(1'500'000, ' '), "");
  std::vector<std::unique_ptr<HttpClient>> listeners, slow;
  const auto connect = [&](auto& clients, int count, const char* path) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      ASSERT_TRUE(clients.back()->connected());
      clients.back()->send(request(path));
    }
  };
  connect(listeners, 400, "/events");
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
  EXPECT_EQ(get(server.port(), "/data.json").body.size(), 1'500'000U);
  EXPECT_LT(memory_kb() - before, 50'000);
}

TEST(WatchServer, EndsAtOnceWithClientsConnected) {
  auto server = std::make_unique<WatchServer>(WatchServerOptions{});
  server->publish(std::string(20'000'000, ' '), "");
  HttpClient listener(server->port()), silent(server->port()), slow(server->port()), begun(server->port());
  listener.send(request("/events"));
  listener.read_until("data: 1\n\n");
  slow.send(request("/data.json"));  // and does not read
  begun.send("GET / HTTP/1.1\r\nHost: ");
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  for (HttpClient* client : {&listener, &silent, &begun}) {
    client->read_to_end();
  }
  EXPECT_LT(slow.read_to_end().size(), 20'000'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

TEST(WatchServer, SaysThatAPortIsTaken) {
  const WatchServer server({});
  try {
    WatchServer({.address = "127.0.0.1", .port = server.port(), .token = ""});
    FAIL() << "two servers have one port";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              fmt::format("cannot listen on 127.0.0.1 port {}: the port is taken, or the address is not one of this "
                          "machine's",
                          server.port()));
  }
  EXPECT_THROW(WatchServer({.address = "127.0.0.1.example", .port = 0, .token = kToken}), Error);
}

}  // namespace

}  // namespace tandem::report
