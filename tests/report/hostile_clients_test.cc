// Clients without the token that are slow, endless or silent must neither take memory nor keep away those with it.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "http_client.h"
#include "report/watch_server.h"

namespace tandem::report {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kClients = 600;  // more than the server's limit

std::string repeat(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += part;
  }
  return text;
}

struct Habit {
  std::string begin, then;  // sent once, and again and again
  Clock::duration pause{};  // between two times
};

const std::array<Habit, 6> kHabits = {{
    {"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", repeat("a", 65536)},               // an endless line
    {"GET / HTTP/1.1\r\nHost: localhost\r\n", repeat("a: b\r\n", 65536)},           // endless many lines
    {"GET /", repeat("a", 65536)},                                                  // an endless path
    {"GET /data.json HTTP/1.1\r\nHost: localhost\r\nX: ", "a", 1500ms},             // a byte now and then
    {"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4096\r\n\r\n", "", 1h},  // a body that never comes
    {"", "", 1h},                                                                   // silence
}};

// All clients on one thread; whoever is dropped comes back at once.
class HostileClients {
 public:
  explicit HostileClients(int port) : port_(port), clients_(kClients), polls_(kClients) {
    for (size_t i = 0; i < kClients; ++i) {
      begin(i);
    }
    thread_ = std::thread([this] {
      while (!ending_) {
        go_on();
      }
    });
  }
  ~HostileClients() {
    ending_ = true;
    thread_.join();
    for (const pollfd& client : polls_) {
      close(client.fd);
    }
  }
  HostileClients(const HostileClients&) = delete;
  HostileClients& operator=(const HostileClients&) = delete;

  size_t connections() const { return connections_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Client {
    bool begun = false;
    Clock::time_point next;
  };

  void begin(size_t i) {
    const linger reset{1, 0};  // leaves no port behind that must wait for a minute
    polls_[i].fd = testing::connect_to(port_, "127.0.0.1", SOCK_NONBLOCK);
    setsockopt(polls_[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    clients_[i] = {};
    ++connections_;
  }
  bool send(size_t i, const std::string& text) {
    const ssize_t sent = ::send(polls_[i].fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    bytes_ += sent > 0 ? static_cast<uint64_t>(sent) : 0;
    return sent >= 0 || errno == EAGAIN;
  }
  void go_on() {
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < kClients; ++i) {
      polls_[i].events = static_cast<short>(now >= clients_[i].next ? POLLIN | POLLOUT : POLLIN);
    }
    poll(polls_.data(), polls_.size(), 20);
    std::array<char, 4096> answer{};
    for (size_t i = 0; i < kClients; ++i) {
      const Habit& habit = kHabits[i % kHabits.size()];
      Client& client = clients_[i];
      bool alive = (polls_[i].revents & (POLLERR | POLLNVAL)) == 0;
      if (alive && (polls_[i].revents & (POLLIN | POLLHUP)) != 0) {
        alive = recv(polls_[i].fd, answer.data(), answer.size(), MSG_DONTWAIT) > 0;
      }
      if (alive && (polls_[i].revents & POLLOUT) != 0) {
        alive = client.begun ? send(i, habit.then) : send(i, habit.begin);
        client.next = client.begun || habit.begin.empty() ? now + habit.pause : now;
        client.begun = true;
      }
      if (!alive) {
        close(polls_[i].fd);
        begin(i);
      }
    }
  }

  int port_;
  std::vector<Client> clients_;
  std::vector<pollfd> polls_;
  std::atomic<size_t> connections_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

int64_t memory_mib() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

TEST(HostileClients, NeitherTakeMemoryNorKeepOthersAway) {
  testing::allow_many_files();  // both ends are of this process
  WatchServer server({.address = "127.0.0.1", .port = 0, .token = "0123456789abcdef"});
  server.publish(std::string(100'000, ' '), "");
  const std::string path = "/data.json?token=0123456789abcdef";
  ASSERT_EQ(testing::get(server.port(), path).status, 200);
  const int64_t before = memory_mib();
  int64_t most = 0;
  Clock::duration longest{};
  int asked = 0;
  {
    const HostileClients hostile(server.port());
    const Clock::time_point end = Clock::now() + (std::getenv("TANDEM_SOAK") != nullptr ? 60s : 6s);
    while (Clock::now() < end) {
      const Clock::time_point begin = Clock::now();
      const testing::HttpAnswer answer = testing::get(server.port(), path);
      longest = std::max(longest, Clock::now() - begin);
      most = std::max(most, memory_mib() - before);
      ASSERT_EQ(answer.status, 200) << "question " << asked;
      ASSERT_EQ(answer.body.size(), 100'000U);
      ++asked;
      std::this_thread::sleep_for(50ms);
    }
    std::cout << kClients << " hostile clients: " << hostile.connections() << " connections, "
              << (hostile.bytes() >> 20) << " MiB sent; memory grew by " << most << " MiB; " << asked
              << " questions, the longest took "
              << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() << " ms\n";
  }
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  EXPECT_LE(most, 64);
#endif
  EXPECT_LE(longest, 2s);
}

}  // namespace

}  // namespace tandem::report
