// Strangers who connect to every port of a run while it starts: they neither break the start nor delay it.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "launched.h"

namespace tandem::testing {
namespace {

constexpr const char* kStranger = "127.0.0.66";

// Ports at which anybody listens in this process's network, as every user can read them.
std::vector<int> listening_ports() {
  std::vector<int> ports;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    while (std::getline(file, line)) {
      unsigned int port = 0;
      unsigned int state = 0;
      if (std::sscanf(line.c_str(), " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) == 2 && state == 0x0A) {
        ports.push_back(static_cast<int>(port));
      }
    }
  }
  return ports;
}

// What strangers send: nothing, noise, another protocol, a message's length that is not true, Gloo's own messages.
std::string greeting(PhiloxStream& random) {
  std::string bytes(random.below(200), '\0');
  for (char& c : bytes) {
    c = static_cast<char>(random.below(256));
  }
  const uint64_t kind = random.below(6);
  if (kind < 2) {
    return kind == 0 ? "" : bytes;
  }
  if (kind < 4) {
    return kind == 2 ? "GET / HTTP/1.1\r\n\r\n" : std::string("\x7f\xff\xff\xff", 4);
  }
  uint64_t preamble[6] = {sizeof preamble, random.below(4), random.below(4), 0, 8, 0};
  return {reinterpret_cast<const char*>(preamble), sizeof preamble};
}

[[noreturn]] void connect_for_ever(int priority) {
  if (geteuid() == 0 && setuid(65534) != 0) {
    _exit(1);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // after setuid(), which unsets it
  setpriority(PRIO_PROCESS, 0, priority);
  PhiloxStream random(7, static_cast<uint64_t>(priority));
  std::deque<int> open;
  while (true) {
    for (const int port : listening_ports()) {
      const int file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      sockaddr_in own{};
      own.sin_family = AF_INET;
      inet_pton(AF_INET, kStranger, &own.sin_addr);
      sockaddr_in peer = own;
      inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr);
      peer.sin_port = htons(static_cast<uint16_t>(port));
      bind(file, reinterpret_cast<sockaddr*>(&own), sizeof own);
      connect(file, reinterpret_cast<sockaddr*>(&peer), sizeof peer);
      const std::string bytes = greeting(random);
      send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      open.push_back(file);
      if (random.below(3) == 0 || open.size() > 300) {  // some stay and say nothing more
        close(open.front());
        open.pop_front();
      }
    }
  }
}

// A network of this process's own, with nothing but its loopback.
bool enter_own_network() {
  if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return false;
  }
  const int file = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(file, SIOCSIFFLAGS, &request) == 0;
  close(file);
  return up;
}

// Seconds from the launch to the end of three workers that meet, one of them a little later, and sum once.
double seconds_of_a_start(std::string& log) {
  const auto began = steady_clock::now();
  Launched launched(launch_arguments("localhost:3", "false", 0, {"steps=1", "late=2:100"}));
  EXPECT_EQ(launched.wait(milliseconds(60000)), 0) << launched.all();
  log += launched.err();
  return std::chrono::duration<double>(steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// With and without strangers in turn, so that other work on this machine slows both.
void start_among_strangers() {
  std::vector<pid_t> strangers;
  for (const int priority : {0, 19}) {  // the second only takes what the run leaves of the cores
    strangers.push_back(fork());
    if (strangers.back() == 0) {
      connect_for_ever(priority);
    }
  }
  const auto signal_strangers = [&](int number) {
    for (const pid_t stranger : strangers) {
      kill(stranger, number);
    }
  };
  std::vector<double> alone;
  std::vector<double> among;
  std::string log;
  std::string none;
  const int starts = std::getenv("TANDEM_SOAK") != nullptr ? 50 : 7;
  for (int i = 0; i < starts; ++i) {
    signal_strangers(SIGSTOP);
    alone.push_back(seconds_of_a_start(none));
    signal_strangers(SIGCONT);
    among.push_back(seconds_of_a_start(log));
  }
  signal_strangers(SIGKILL);
  while (wait(nullptr) > 0) {
  }
  std::printf("%d starts alone take %.3f s, among strangers %.3f s (medians; longest %.3f and %.3f s)\n", starts,
              median(alone), median(among), std::ranges::max(alone), std::ranges::max(among));
  EXPECT_LT(median(among), 1.5 * median(alone));
  EXPECT_TRUE(contains(log, std::string("warning: ") + kStranger + " connects to a port of this run")) << log;
  EXPECT_FALSE(contains(none, kStranger)) << none;
}

TEST(Strangers, NeitherBreakNorDelayAStart) {
  const pid_t process = fork();
  if (process == 0) {
    if (!enter_own_network()) {
      _exit(77);
    }
    start_among_strangers();
    std::fflush(stdout);
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(process, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "a network namespace cannot be made here";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem::testing
