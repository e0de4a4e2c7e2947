#include "http/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "http_client.h"

namespace tandem::http {

namespace {

using namespace std::chrono_literals;
using testing::answer_to;
using testing::get;
using testing::HttpClient;
using testing::request;
using Clock = std::chrono::steady_clock;

std::string chunk(const std::string& text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }

// Echoes what it was asked; small limits. "Secret: yes" is the token.
Options options() {
  Options result;
  result.limits = {.connections = 8,
                   .header_bytes = 8192,
                   .body_bytes = 1000,
                   .request_time = 600ms,
                   .reply_time = 600ms,
                   .longest_silence = 100ms};
  result.refusal = [](const Request& asked) -> std::optional<Reply> {
    return asked.header("secret") == "yes" ? std::nullopt : std::optional(plain(401, "no"));
  };
  result.routes["/echo"] = [](const Request& asked) {
    return plain(200, asked.method + asked.path + asked.parameter("a") + asked.header("X-B") + asked.body,
                 {{"X-C", "c"}});
  };
  result.routes["/fails"] = [](const Request&) -> Reply { throw std::runtime_error("what is wrong"); };
  result.routes["/large"] = [text = std::make_shared<const std::string>(20'000'000, 'x')](const Request&) {
    return Reply{.body = text};
  };
  return result;
}

constexpr const char* kSecret = "Secret: yes\r\n";

TEST(HttpServer, GivesTheHandlerTheWholeRequest) {
  const Server server(options());
  const testing::HttpAnswer answer = answer_to(
      server.port(),
      request("/echo?b=1&a=%41+2", std::string(kSecret) + "x-b: 3\r\nContent-Length: 4\r\n", "POST") + "body");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST/echoA 23body\n");
  EXPECT_EQ(answer.header("X-C"), "c");
  EXPECT_EQ(get(server.port(), "/nowhere", kSecret).body, "there is only /echo, /fails, /large\n");
  EXPECT_EQ(get(server.port(), "/fails", kSecret).status, 500);
  EXPECT_EQ(get(server.port(), "/fails", kSecret).body, "what is wrong\n");
  EXPECT_EQ(get(server.port(), "/echo").status, 401);
}

TEST(HttpServer, KeepsConnectionsForMoreRequests) {
  const Server server(options());
  HttpClient client(server.port());
  const std::string asked = "GET /echo?a=1 HTTP/1.1\r\nHost: localhost\r\nSecret: yes\r\n\r\n";
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.send(asked));
    EXPECT_TRUE(client.read_until("GET/echo1\n").ends_with("GET/echo1\n")) << i;
    client.forget();
    std::this_thread::sleep_for(200ms);  // longer than request_time altogether
  }
  client.send(asked + asked + "\x16\x03\x01 garbage\r\n\r\n");  // pipelined
  const std::string rest = client.read_to_end();
  EXPECT_EQ(rest.find("GET/echo1\n"), rest.rfind("GET/echo1\n", rest.rfind("GET/echo1\n") - 1)) << rest;
  EXPECT_NE(rest.find("HTTP/1.1 400"), std::string::npos) << rest;
}

TEST(HttpServer, AnswersGarbageWith400OrNothing) {
  const Server server(options());
  for (const std::string& garbage :
       {std::string("\x16\x03\x01 garbage\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"), std::string("\r\n\r\n\r\n"),
        std::string("GET /echo HTTP/1.1\r\nHost localhost\r\n\r\n"), std::string(5000, '\0'),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nSecret: yes\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nSecret: yes\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nSecret: yes\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    const int status = answer_to(server.port(), garbage).status;
    EXPECT_TRUE(status == 0 || (status >= 400 && status < 600 && status != 500)) << garbage << ": " << status;
  }
  EXPECT_EQ(get(server.port(), "/echo", kSecret).status, 200);
}

TEST(HttpServer, BoundsHeadersInBytesAndNumber) {
  const Server server(options());
  std::string many = kSecret;
  for (int i = 0; i < 20; ++i) {
    many += fmt::format("x{}: {}\r\n", i, std::string(50, 'v'));
  }
  EXPECT_EQ(get(server.port(), "/echo", many).status, 200);
  for (int i = 0; i < 1000; ++i) {
    many += "a:b\r\n";
  }
  for (const std::string& lines : {many, "x: " + std::string(100'000, 'a') + "\r\n"}) {
    const int status = get(server.port(), "/echo", lines).status;  // a client that still writes may see no answer
    EXPECT_TRUE(status == 431 || status == 0) << status;
  }
  const int status = get(server.port(), "/" + std::string(100'000, 'a'), kSecret).status;
  EXPECT_TRUE(status == 414 || status == 0) << status;
}

TEST(HttpServer, BoundsBodiesWithAndWithoutALength) {
  std::atomic<int> calls = 0;
  Options counting = options();
  counting.routes["/echo"] = [&](const Request&) {
    ++calls;
    return plain(200, "");
  };
  const Server server(counting);
  const auto post = [&](const std::string& line, const std::string& body) {
    return answer_to(server.port(), request("/echo", kSecret + line + "\r\n", "POST") + body).status;
  };
  EXPECT_EQ(post("Content-Length: 1000", std::string(1000, 'x')), 200);
  EXPECT_EQ(post("Transfer-Encoding: chunked", chunk(std::string(500, 'x')) + chunk(std::string(500, 'x')) + chunk("")),
            200);
  EXPECT_EQ(post("Content-Length: 1001", ""), 413);
  EXPECT_EQ(post("Transfer-Encoding: chunked", chunk(std::string(500, 'x')) + chunk(std::string(501, 'x')) + chunk("")),
            0);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(answer_to(server.port(), request("/echo", "Content-Length: 9\r\n", "POST")).status,
            401);  // before its body
}

// What never becomes a whole request is closed after request_time, whatever is sent now and then.
TEST(HttpServer, BoundsTheTimeOfARequest) {
  const Server server(options());
  for (const std::string& begun : {std::string(), "GET /echo HTTP/1.1\r\nX: " + std::string(1, 'a'),
                                   request("/echo", std::string(kSecret) + "Content-Length: 900\r\n", "POST")}) {
    HttpClient client(server.port());
    const Clock::time_point begin = Clock::now();
    client.send(begun);
    std::atomic<bool> over = false;
    std::thread writer([&] {
      while (!over && client.send(begun.empty() ? "" : "a")) {
        std::this_thread::sleep_for(50ms);
      }
    });
    client.read_to_end();
    EXPECT_GE(Clock::now() - begin, 600ms) << begun;
    EXPECT_LE(Clock::now() - begin, 2s) << begun;
    over = true;
    writer.join();
  }
}

TEST(HttpServer, BoundsTheTimeOfAReply) {
  const Server server(options());
  HttpClient slow(server.port());
  slow.send(request("/large", kSecret));
  std::this_thread::sleep_for(1500ms);
  EXPECT_LT(slow.read_to_end().size(), 20'000'000U);
  EXPECT_EQ(get(server.port(), "/large", kSecret).body.size(), 20'000'000U);  // one that reads gets it
}

// Of more clients than there may be, the one that has waited longest goes, and nobody who is being answered.
TEST(HttpServer, WhoSendsNoRequestGivesWay) {
  Options patient = options();
  patient.limits.request_time = 60s;
  const auto never = []() -> std::optional<std::string> { return ""; };
  patient.routes["/stream"] = [&](const Request&) { return Reply{.stream = {.next = never, .sign_of_life = "alive"}}; };
  const Server server(patient);
  HttpClient listener(server.port());
  listener.send(request("/stream", kSecret));
  listener.read_until("alive");
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 30; ++i) {
    silent.push_back(std::make_unique<HttpClient>(server.port()));
    EXPECT_EQ(get(server.port(), "/echo", kSecret).status, 200) << i;
  }
  EXPECT_EQ(silent.front()->read_to_end(), "");
  EXPECT_EQ(silent[22]->read_to_end(), "");
  EXPECT_TRUE(silent.back()->send(request("/echo?a=last", kSecret)));
  EXPECT_NE(silent.back()->read_to_end().find("GET/echolast"), std::string::npos);
  listener.forget();
  EXPECT_NE(listener.read_until("alive").find("alive"), std::string::npos);
}

TEST(HttpServer, StreamsUntilTheEndOrTheClientIsGone) {
  struct Shared {
    std::mutex mutex;
    std::string text;
    bool over = false;
  };
  Shared shared;
  std::atomic<int> streams = 0;
  Options streaming = options();
  streaming.routes["/stream"] = [&](const Request&) {
    ++streams;
    const std::shared_ptr<void> guard(nullptr, [&](void*) { --streams; });
    const auto next = [&shared, guard]() -> std::optional<std::string> {
      const std::lock_guard lock(shared.mutex);
      return shared.over && shared.text.empty() ? std::nullopt : std::optional(std::exchange(shared.text, ""));
    };
    return Reply{.stream = {.next = next, .sign_of_life = "still here"}};
  };
  Server server(streaming);
  const auto write = [&](const std::string& text, bool over) {
    {
      const std::lock_guard lock(shared.mutex);
      shared.text += text;
      shared.over = over;
    }
    server.wake();
  };
  {
    HttpClient client(server.port());
    client.send(request("/stream", kSecret));
    client.read_until("still here");
    write("first", false);
    EXPECT_NE(client.read_until("first").find(chunk("first")), std::string::npos);
    write(std::string(100'000, 'x'), true);
    const std::string all = client.read_to_end();
    EXPECT_EQ(std::ranges::count(all, 'x'), 100'000);
    EXPECT_TRUE(all.ends_with("0\r\n\r\n"));
  }
  write("", false);
  auto client = std::make_unique<HttpClient>(server.port());
  client->send(request("/stream", kSecret));
  client->read_until("\r\n\r\n");
  EXPECT_EQ(streams, 1);
  client.reset();
  for (int tries = 0; tries < 40 && streams > 0; ++tries) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(streams, 0);
  HttpClient slow(server.port());  // which reads nothing of a part that is large
  slow.send(request("/stream", kSecret));
  slow.read_until("still here");
  write(std::string(20'000'000, 'x'), false);
  for (int tries = 0; tries < 60 && streams > 0; ++tries) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(streams, 0);
}

TEST(HttpServer, AnswersOldClientsWithoutChunks) {
  Options streaming = options();
  streaming.routes["/stream"] = [](const Request&) {
    return Reply{.stream = {.next = [left = 3]() mutable -> std::optional<std::string> {
                              return left-- > 0 ? std::optional<std::string>("part ") : std::nullopt;
                            },
                            .sign_of_life = ""}};
  };
  const Server server(streaming);
  EXPECT_EQ(answer_to(server.port(), "GET /stream HTTP/1.0\r\nSecret: yes\r\n\r\n").body, "part part part ");
}

}  // namespace

}  // namespace tandem::http
