#include "launch/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <list>
#include <optional>

#include "core/error.h"
#include "dist/message.h"
#include "dist/socket.h"
#include "dist/world.h"
#include "launch/child.h"

namespace tandem::launch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr size_t kOrderLimit = 4U << 20;  // bytes of a message from the launcher
constexpr size_t kMostUnsent = 1U << 20;  // bytes; above this, no more output of the workers is read
constexpr milliseconds kBeat{1000};
constexpr milliseconds kSilence{6000};  // without a message, the launcher counts as gone
constexpr milliseconds kTick{100};

// The addresses of this host: first the one that ssh connected to, then all others.
std::vector<std::string> addresses_to_meet() {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (!address.empty() && !dist::is_loopback(address) && !address.starts_with("fe80") &&
        std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  };
  const std::string connection = dist::variable("SSH_CONNECTION");  // "client port server port"
  const size_t last = connection.rfind(' ');
  if (last != std::string::npos) {
    const size_t before = connection.rfind(' ', last - 1);
    add(connection.substr(before + 1, last - before - 1));
  }
  for (const int family : {AF_INET, AF_INET6}) {
    for (const dist::InterfaceAddress& own : dist::own_addresses()) {
      if (own.up && own.family == family) {
        add(own.address);
      }
    }
  }
  return addresses;
}

// Signals to stop that reach the agent too (from systemd, a batch system, a terminal that is closed) are the workers'
// matter; the agent ends with its input and with them. Handlers, because exec() would keep ignored signals ignored.
void outlive_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (signal(number, [](int) {}) == SIG_IGN && number == SIGHUP) {
      signal(number, SIG_IGN);
    }
  }
}

class Agent {
 public:
  Agent(int in, int out)
      : in_(fcntl(in, F_DUPFD_CLOEXEC, 0)),
        out_(fcntl(out, F_DUPFD_CLOEXEC, 0)),
        orders_(kOrderLimit),
        unsent_(kAgentGreeting),
        last_heard_(steady_clock::now()) {
    signal(SIGPIPE, SIG_IGN);
    outlive_stop_signals();
    set_nonblocking(in_);
    set_nonblocking(out_);
  }

  void run() {
    while (!launcher_gone_ || !workers_.empty()) {
      wait_for_events();
      reap();
      look_at_clock();
    }
  }

 private:
  struct Worker {
    int rank = 0;
    Child child;
    PipeLines out, err;
    bool ordered = false;  // this agent ended it
  };

  void wait_for_events() {
    std::vector<pollfd> events;
    if (!launcher_gone_) {
      events.push_back({in_.get(), POLLIN, 0});
      if (!unsent_.empty()) {
        events.push_back({out_.get(), POLLOUT, 0});
      }
    }
    const bool room = unsent_.size() < kMostUnsent;
    for (const Worker& worker : workers_) {
      for (const Pipe* pipe : {&worker.child.out, &worker.child.err}) {
        if (room && pipe->open()) {
          events.push_back({pipe->get(), POLLIN, 0});
        }
      }
    }
    poll(events.data(), events.size(), static_cast<int>(kTick.count()));
    if (!launcher_gone_) {
      read_orders();
    }
    for (Worker& worker : workers_) {
      if (unsent_.size() < kMostUnsent || launcher_gone_) {
        relay(worker);
      }
    }
    write();
  }

  void read_orders() {
    for (std::string bytes; !launcher_gone_ && read_some(in_, bytes); bytes.clear()) {
      last_heard_ = steady_clock::now();
      orders_.add(bytes);
      try {
        while (auto message = orders_.next()) {
          handle(*message);
        }
      } catch (const Error& error) {
        send({"failed", error.what()});
      }
    }
    if (!in_.open()) {
      lose_launcher();
    }
  }

  void send(const dist::Message& message) {
    if (!launcher_gone_) {
      unsent_ += dist::encode(message);
    }
  }

  void write() {
    write_some(out_, unsent_);
    if (!out_.open()) {
      lose_launcher();
    }
  }

  void handle(const dist::Message& message) {
    const std::string& order = message.front();
    if (order == "listen") {
      listen(dist::field_of(message, 1) == "local");
    } else if (order == "start") {
      start(message);
    } else if (order == "signal") {
      signal_all(dist::number_of(dist::field_of(message, 1), 1, 64));
    } else if (order == "grace") {
      grace_ = milliseconds(dist::number_of(dist::field_of(message, 1), 0, INT_MAX));
    } else if (order == "end") {
      kill_at_ = dist::from_now(milliseconds(dist::number_of(dist::field_of(message, 1), 0, INT_MAX)));
    } else {
      require(order == "beat", "the agent received the unknown command '{}'", dist::printable(order, 40));
    }
  }

  void listen(bool local) {
    listener_ = dist::listen_on(local, 0);
    dist::Message answer{"listening", std::to_string(dist::port_of(listener_))};
    const std::vector<std::string> addresses = local ? std::vector<std::string>{"127.0.0.1"} : addresses_to_meet();
    answer.insert(answer.end(), addresses.begin(), addresses.end());
    send(answer);
  }

  void start(const dist::Message& message) {
    Worker worker;
    worker.rank = dist::number_of(dist::field_of(message, 1), 0, INT_MAX);
    ChildOptions options;
    options.directory = dist::field_of(message, 2);
    const bool listens = dist::field_of(message, 3) == "listener";
    const auto arguments = static_cast<size_t>(dist::number_of(dist::field_of(message, 4), 1, 100000));
    dist::field_of(message, 4 + arguments);
    const auto first = message.begin() + 5;
    options.arguments.assign(first, first + static_cast<ptrdiff_t>(arguments));
    options.environment.assign(first + static_cast<ptrdiff_t>(arguments), message.end());
    options.dies_with_us = true;
    if (listens) {
      options.inherits = listener_.get();
      options.environment.push_back(fmt::format("TANDEM_LISTENER={}", listener_.get()));
    }
    worker.child = start_child(options);
    if (listens) {
      listener_ = dist::Socket();
    }
    workers_.push_back(std::move(worker));
  }

  // Returns whether there was output.
  bool relay_stream(Pipe& pipe, PipeLines& reader, const char* kind, int rank) {
    std::vector<std::string> lines;
    const bool some = reader.read(pipe, lines);
    for (const std::string& line : lines) {
      send({kind, std::to_string(rank), line});
    }
    return some;
  }

  bool relay(Worker& worker) {
    const bool any = relay_stream(worker.child.out, worker.out, "out", worker.rank);
    return relay_stream(worker.child.err, worker.err, "err", worker.rank) || any;
  }

  void reap() {
    for (auto worker = workers_.begin(); worker != workers_.end();) {
      const pid_t process = worker->child.process;
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
        ++worker;
        continue;
      }
      kill(-process, SIGKILL);  // the processes that it started, while its group still has this number
      int status = 0;
      waitpid(process, &status, 0);
      while (relay(*worker)) {
      }
      send({"exited", std::to_string(worker->rank), std::to_string(status), worker->ordered ? "ordered" : ""});
      worker = workers_.erase(worker);
    }
    write();
  }

  void signal_all(int number) {
    for (const Worker& worker : workers_) {
      kill(-worker.child.process, number);
    }
  }

  void look_at_clock() {
    const auto now = steady_clock::now();
    if (now - last_heard_ > kSilence) {
      lose_launcher();
    }
    if (kill_at_ && now >= *kill_at_) {
      for (Worker& worker : workers_) {
        worker.ordered = true;
      }
      signal_all(SIGKILL);
    }
    if (now - last_beat_ >= kBeat) {
      last_beat_ = now;
      if (unsent_.empty()) {  // otherwise the launcher receives something anyway
        send({"beat"});
      }
    }
  }

  void lose_launcher() {
    if (!std::exchange(launcher_gone_, true)) {
      unsent_.clear();
      signal_all(SIGTERM);
      kill_at_ = std::min(kill_at_.value_or(dist::Deadline::max()), dist::from_now(grace_));
    }
  }

  Pipe in_, out_;
  dist::MessageReader orders_;
  std::string unsent_;
  dist::Socket listener_;
  std::list<Worker> workers_;
  dist::Deadline last_heard_, last_beat_;
  std::optional<dist::Deadline> kill_at_;
  milliseconds grace_{0};  // between SIGTERM and SIGKILL when the launcher is gone
  bool launcher_gone_ = false;
};

}  // namespace

void run_agent(int in, int out) { Agent(in, out).run(); }

}  // namespace tandem::launch
