#include "launch/launch.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <list>
#include <map>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "dist/background.h"
#include "dist/message.h"
#include "dist/world.h"
#include "launch/agent_link.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBetweenAttempts{1000};
constexpr milliseconds kGreetingTime{30000};  // longest time for an agent to start
constexpr milliseconds kBeat{1000};
constexpr milliseconds kSilence{10000};  // an agent silent for so long is lost; workers notice each other sooner
constexpr milliseconds kTick{100};
constexpr milliseconds kAway{2000};
constexpr milliseconds kFailureGrace{4000};  // for workers to end by themselves after a failure
constexpr milliseconds kMargin{2000};        // so that workers end themselves when their grace is over, and say so
constexpr milliseconds kKillTime{4000};      // longest time for an agent to kill its workers

// One attempt: starts all workers and runs until all have ended.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const std::vector<Host>& hosts, const Signals& signals)
      : options_(options), signals_(signals) {
    for (const Host& host : hosts) {
      AgentLink& agent = agents_.emplace_back(host, options.agent, options.binary, grace());
      for (int i = 0; i < host.workers; ++i) {
        workers_.push_back({static_cast<int>(workers_.size()), &agent, false, ""});
      }
    }
    heartbeat_thread_ = dist::start_thread([this] { beat(); });
  }

  ~Attempt() {
    done_ = true;
    heartbeat_thread_.join();
  }

  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // The kinds of causes that end an attempt; a later kind explains more.
  enum class Weight { none, stopped, news_of_another, own_error, lost_host, killed };
  struct Cause {
    std::string text;
    Weight weight = Weight::none;
  };

  // Returns the first cause of a failure; its text is empty if there was none.
  Cause run() {
    wait_for_greetings();
    if (cause_.text.empty() && signals_.stop_signal() == 0) {
      const std::string rendezvous = find_rendezvous();
      if (cause_.text.empty() && signals_.stop_signal() == 0) {
        start_workers(rendezvous);
        while (!all_ended()) {
          wait_for_events();
          look_at_clock();
        }
      }
    }
    return cause_;
  }

  // The hosts that did not answer or stopped answering.
  std::vector<std::string> lost_hosts() const {
    std::vector<std::string> names;
    for (const AgentLink& agent : agents_) {
      if (agent.lost()) {
        names.push_back(agent.host().name);
      }
    }
    return names;
  }

 private:
  struct Worker {
    int rank = 0;
    AgentLink* agent = nullptr;
    bool ended = false;
    std::string last_error;  // its last line on standard error
  };
  milliseconds grace() const { return options_.grace + kMargin; }

  void beat() {
    for (auto next = steady_clock::now(); !done_; std::this_thread::sleep_for(kTick)) {
      if (steady_clock::now() >= next) {
        next += kBeat;
        for (AgentLink& agent : agents_) {
          agent.send({"beat"});
        }
      }
    }
  }

  void wait_for_greetings() {
    const auto deadline = dist::from_now(kGreetingTime);
    const auto silent = [](const AgentLink& agent) { return !agent.greeted() && !agent.lost(); };
    while (signals_.stop_signal() == 0 && std::any_of(agents_.begin(), agents_.end(), silent)) {
      wait_for_events();
      for (AgentLink& agent : agents_) {
        if (silent(agent) && steady_clock::now() > deadline) {
          agent.lose(fmt::format("no answer within {} s", kGreetingTime.count() / 1000));
        }
      }
    }
    std::map<std::string, std::vector<std::string>> hosts;  // hosts by the problem that they have
    for (const AgentLink& agent : agents_) {
      if (agent.lost()) {
        hosts[agent.why_lost()].push_back(agent.host().name);
      }
    }
    std::string missing;
    for (const auto& [why, names] : hosts) {
      missing += fmt::format("{}{} {} cannot be used: {}", missing.empty() ? "" : "; ",
                             names.size() == 1 ? "host" : "hosts", fmt::join(names, ", "), why);
    }
    if (!missing.empty()) {
      cause_.text = fmt::format("{} (ssh must reach a host without a password, and {} must be there: --push copies it)",
                                missing, options_.binary);
    }
  }

  // Rank 0's host opens a port before any worker runs, and reports its addresses.
  std::string find_rendezvous() {
    const bool local = agents_.size() == 1;
    agents_.front().send({"listen", local ? "local" : "any"});
    const auto deadline = dist::from_now(kGreetingTime);
    while (port_ == 0 && cause_.text.empty() && signals_.stop_signal() == 0) {
      wait_for_events();
      if (agents_.front().lost() || steady_clock::now() > deadline) {
        cause_.text = fmt::format("host {} did not open a port for the workers to meet", agents_.front().host().name);
      }
    }
    if (!local) {
      const std::string& name = agents_.front().host().name;
      if (!is_this_host(name)) {
        addresses_.push_back(name);
      }
      addresses_ = options_.address.empty() ? addresses_ : std::vector<std::string>{options_.address};
    }
    std::string hosts;
    for (const std::string& address : addresses_) {
      hosts += fmt::format("{}{}", hosts.empty() ? "" : ",",
                           address.find(':') == std::string::npos ? address : "[" + address + "]");
    }
    return fmt::format("{}:{}", hosts, port_);
  }

  void start_workers(const std::string& rendezvous) {
    const std::string secret = dist::random_token();
    std::string hosts;
    for (const Worker& worker : workers_) {
      hosts += fmt::format("{}{}", worker.rank == 0 ? "" : ",", worker.agent->host().name);
    }
    int rank = 0;
    int node = 0;
    for (AgentLink& agent : agents_) {
      for (int local = 0; local < agent.host().workers; ++local, ++rank) {
        dist::Message order{"start",
                            std::to_string(rank),
                            options_.directory,
                            rank == 0 ? "listener" : "",
                            std::to_string(options_.command.size() + 1),
                            options_.binary};
        order.insert(order.end(), options_.command.begin(), options_.command.end());
        order.insert(order.end(), options_.environment.begin(), options_.environment.end());
        const auto set = [&](const char* name, const auto& value) {
          order.push_back(fmt::format("TANDEM_{}={}", name, value));
        };
        set("RANK", rank);
        set("SIZE", workers_.size());
        set("LOCAL_RANK", local);
        set("LOCAL_SIZE", agent.host().workers);
        set("NODE", node);
        set("NODES", agents_.size());
        set("HOST", agent.host().name);
        set("HOSTS", hosts);
        set("RENDEZVOUS", rendezvous);
        set("SECRET", secret);
        agent.send(order);
      }
      ++node;
    }
  }

  void wait_for_events() {
    std::vector<pollfd> events;
    for (const AgentLink& agent : agents_) {
      agent.add_events(events);
    }
    poll(events.data(), events.size(), static_cast<int>(kTick.count()));
    for (AgentLink& agent : agents_) {
      try {
        for (const dist::Message& message : agent.receive()) {
          handle(agent, message);
        }
      } catch (const Error& error) {
        agent.lose(error.what());
      }
    }
  }

  void handle(AgentLink& agent, const dist::Message& message) {
    const std::string& kind = message.front();
    if (kind == "out" || kind == "err") {
      const int rank = dist::number_of(dist::field_of(message, 1), 0, static_cast<int>(workers_.size()) - 1);
      const std::string& line = dist::field_of(message, 2);
      std::FILE* stream = kind == "out" ? stdout : stderr;
      const std::string prefix = rank == 0 ? "" : fmt::format("[rank {} on {}] ", rank, agent.host().name);
      log::write_console(stream, prefix + line + "\n");
      if (kind == "err" && !line.empty()) {
        workers_[rank].last_error = line;
      }
    } else if (kind == "exited") {
      handle_exit(message);
    } else if (kind == "listening") {
      port_ = dist::number_of(dist::field_of(message, 1), 1, 65535);
      for (size_t i = 2; i < message.size(); ++i) {
        addresses_.push_back(dist::printable(message[i], 255));
      }
    } else if (kind == "failed") {
      agent.lose(dist::printable(dist::field_of(message, 1)));
    }
  }

  void handle_exit(const dist::Message& message) {
    Worker& worker = workers_.at(dist::number_of(dist::field_of(message, 1), 0, static_cast<int>(workers_.size()) - 1));
    const int status = dist::number_of(dist::field_of(message, 2), 0, INT_MAX);
    const bool ordered = dist::field_of(message, 3) == "ordered";
    worker.ended = true;
    const bool stopped = std::ranges::any_of(std::array{SIGTERM, SIGINT, SIGHUP}, [&](int number) {
      return WIFEXITED(status) ? WEXITSTATUS(status) == 128 + number : WTERMSIG(status) == number;
    });
    if (status == 0 || (stopped && signals_.stop_signal() != 0) || (ordered && !cause_.text.empty())) {
      return;
    }
    const std::string last =
        dist::printable(worker.last_error.starts_with("tandem: ") ? worker.last_error.substr(8) : worker.last_error);
    if (WIFEXITED(status) && last.starts_with("rank ")) {
      return end_all(last, Weight::news_of_another);
    }
    end_all(fmt::format("rank {} on host {} {}{}{}", worker.rank, worker.agent->host().name, describe_end(status),
                        last.empty() ? "" : ": ", last),
            stopped               ? Weight::stopped
            : WIFSIGNALED(status) ? Weight::killed
                                  : Weight::own_error);
  }

  bool works(const AgentLink& agent) const {
    return std::ranges::any_of(workers_, [&](const Worker& worker) { return worker.agent == &agent && !worker.ended; });
  }

  void look_at_clock() {
    const auto now = steady_clock::now();
    // If this process itself did not run for a while (a pager that does not read, Ctrl-Z), there is unread input.
    const bool was_away = now - std::exchange(looked_, now) > kAway;
    for (AgentLink& agent : agents_) {
      if (!was_away && now - agent.last_heard() > kSilence) {
        agent.lose(fmt::format("no message from it for {} s", kSilence.count() / 1000));
      }
      if (!cause_.text.empty() && now > end_by_ && works(agent)) {
        agent.lose("it does not end its workers");
      }
      if (agent.lost()) {
        const bool had_workers = works(agent);
        for (Worker& worker : workers_) {
          worker.ended = worker.ended || worker.agent == &agent;
        }
        if (had_workers) {
          end_all(fmt::format("host {} is lost: {}", agent.host().name, agent.why_lost()), Weight::lost_host);
        }
      }
    }
    if (signals_.stop_signal() != 0 && !std::exchange(signalled_, true)) {
      log::info("{}: the workers save and end within {} s", strsignal(signals_.stop_signal()), options_.grace.count());
      send_all({"signal", std::to_string(SIGTERM)});
      end_within(grace());
    }
  }

  // Workers notice by themselves that one is gone, report it and end; those that do not are killed.
  void end_all(const std::string& cause, Weight weight) {
    if (cause_.text.empty()) {
      end_within(weight == Weight::stopped ? grace() : kFailureGrace);
    }
    if (weight > cause_.weight) {
      cause_ = {cause, weight};
    }
  }

  // Workers that still run after this time are killed.
  void end_within(milliseconds time) {
    end_by_ = dist::from_now(time + kKillTime);
    send_all({"end", std::to_string(time.count())});
  }

  void send_all(const dist::Message& message) {
    for (AgentLink& agent : agents_) {
      agent.send(message);
    }
  }

  bool all_ended() const { return std::ranges::all_of(workers_, &Worker::ended); }

  const LaunchOptions& options_;
  const Signals& signals_;
  std::list<AgentLink> agents_;
  std::vector<Worker> workers_;  // by rank
  std::vector<std::string> addresses_;
  int port_ = 0;
  Cause cause_;
  dist::Deadline end_by_, looked_;
  bool signalled_ = false;
  std::atomic<bool> done_ = false;
  std::thread heartbeat_thread_;  // sends heartbeats even while our own output waits for a terminal
};

void require_sound(const LaunchOptions& options) {
  require(!options.hosts.empty(), "no hosts given: add --hosts, as in --hosts a:2,b:2");
  require(!options.command.empty(), "nothing to start: give a command after --, as in -- train config.toml run=DIR");
  require(options.restarts >= 0, "--restarts must not be negative, but is {}", options.restarts);
  for (const std::string& entry : options.environment) {
    require(entry.find('=') != std::string::npos && entry.front() != '=', "'{}' is not a variable: give NAME=VALUE",
            entry);
  }
}

void remove_hosts(std::vector<Host>& hosts, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    log::warning("host {} no longer answers and is left out", name);
    std::erase_if(hosts, [&](const Host& host) { return host.name == name; });
  }
}

}  // namespace

std::string own_binary() {
  const std::string script = dist::variable("TANDEM_PROGRAM");  // set by a script that brings its own libraries
  return script.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : script;
}

void launch_here(int workers, const std::vector<std::string>& command, std::chrono::seconds grace) {
  LaunchOptions options;
  options.hosts = {{"localhost", workers}};
  options.binary = own_binary();
  options.command = command;
  options.directory = std::filesystem::current_path().string();
  options.grace = grace;
  launch(options);
}

void launch(const LaunchOptions& options) {
  require_sound(options);
  // Its own limit is only for a launcher that its terminal blocks: it reports workers that exceed theirs.
  const Signals signals(static_cast<int>(options.grace.count() +
                                         std::chrono::ceil<std::chrono::seconds>(kMargin + 2 * kKillTime).count()));
  const IgnoredPipeSignal ignored;
  std::vector<Host> hosts = options.hosts;
  LaunchOptions all = options;
  all.environment.push_back("TANDEM_LAUNCH=" + dist::random_token());  // workers recognise a restart by it
  for (int attempt = 0;; ++attempt) {
    Attempt::Cause cause;
    std::vector<std::string> lost;
    {
      Attempt one(all, hosts, signals);
      cause = one.run();
      lost = one.lost_hosts();
    }
    if (const int number = signals.stop_signal(); number != 0) {
      require(cause.weight <= Attempt::Weight::news_of_another, "{}", cause.text);
      throw Interrupted(number, fmt::format("{}: all workers have ended", strsignal(number)));
    }
    if (cause.text.empty()) {
      break;
    }
    require(attempt < options.restarts, "{}", cause.text);
    remove_hosts(hosts, lost);
    require(!hosts.empty(), "{}; no host is left for a restart", cause.text);
    log::warning("{}; restart {} of {} with {} workers on {} hosts", cause.text, attempt + 1, options.restarts,
                 count_workers(hosts), hosts.size());
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

}  // namespace tandem::launch
