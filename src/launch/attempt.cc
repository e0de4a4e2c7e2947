#include "launch/attempt.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <map>

#include "core/error.h"
#include "core/log.h"
#include "dist/authentication.h"
#include "dist/signal_mask.h"

namespace tandem::launch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kGreetingTime{30000};  // for an agent to start
constexpr milliseconds kBeat{1000};
constexpr milliseconds kSilence{10000};  // after which an agent counts as lost; workers notice each other sooner
constexpr milliseconds kTick{100};
constexpr milliseconds kAway{2000};
constexpr int kGrace = 4000;                       // milliseconds for workers to end by themselves after a failure
constexpr milliseconds kLastLimit{kGrace + 4000};  // for all to be gone

}  // namespace

Attempt::Attempt(const LaunchOptions& options, const std::vector<Host>& hosts, const Signals& signals)
    : options_(options), signals_(signals) {
  for (const Host& host : hosts) {
    AgentLink& agent = agents_.emplace_back(host, options.agent, options.binary);
    for (int i = 0; i < host.workers; ++i) {
      workers_.push_back({static_cast<int>(workers_.size()), &agent, false, ""});
    }
  }
  const dist::BlockedSignals blocked;
  heartbeat_thread_ = std::thread([this] { beat(); });
}

Attempt::~Attempt() {
  done_ = true;
  heartbeat_thread_.join();
}

void Attempt::beat() {
  for (auto next = steady_clock::now(); !done_; std::this_thread::sleep_for(kTick)) {
    if (steady_clock::now() >= next) {
      next += kBeat;
      for (AgentLink& agent : agents_) {
        agent.send({"beat"});
      }
    }
  }
}

std::string Attempt::run() {
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
  return cause_.text;
}

std::vector<std::string> Attempt::lost_hosts() const {
  std::vector<std::string> names;
  for (const AgentLink& agent : agents_) {
    if (agent.lost()) {
      names.push_back(agent.host().name);
    }
  }
  return names;
}

void Attempt::wait_for_greetings() {
  const auto deadline = steady_clock::now() + kGreetingTime;
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
std::string Attempt::find_rendezvous() {
  const bool local = agents_.size() == 1;
  agents_.front().send({"listen", local ? "local" : "any"});
  const auto deadline = steady_clock::now() + kGreetingTime;
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

void Attempt::start_workers(const std::string& rendezvous) {
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

void Attempt::wait_for_events() {
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

void Attempt::handle(AgentLink& agent, const dist::Message& message) {
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

void Attempt::handle_exit(const dist::Message& message) {
  Worker& worker = workers_.at(dist::number_of(dist::field_of(message, 1), 0, static_cast<int>(workers_.size()) - 1));
  const int status = dist::number_of(dist::field_of(message, 2), 0, INT_MAX);
  const bool ordered = dist::field_of(message, 3) == "ordered";
  worker.ended = true;
  const bool stopped_well =
      signalled_ && WIFEXITED(status) && (WEXITSTATUS(status) == 128 + SIGTERM || WEXITSTATUS(status) == 128 + SIGINT);
  if (status == 0 || stopped_well || ordered) {
    return;
  }
  const std::string last =
      dist::printable(worker.last_error.starts_with("tandem: ") ? worker.last_error.substr(8) : worker.last_error);
  if (WIFEXITED(status) && last.starts_with("rank ")) {
    return end_all(last, Weight::news_of_another);
  }
  end_all(fmt::format("rank {} on host {} {}{}{}", worker.rank, worker.agent->host().name, describe_end(status),
                      last.empty() ? "" : ": ", last),
          WIFSIGNALED(status) ? Weight::killed : Weight::own_error);
}

bool Attempt::works(const AgentLink& agent) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const Worker& worker) { return worker.agent == &agent && !worker.ended; });
}

void Attempt::look_at_clock() {
  const auto now = steady_clock::now();
  // If this process itself did not run for a while (a pager that does not read, Ctrl-Z), there is unread input.
  const bool was_away = now - std::exchange(looked_, now) > kAway;
  for (AgentLink& agent : agents_) {
    if (!was_away && now - agent.last_heard() > kSilence) {
      agent.lose(fmt::format("no message from it for {} s", kSilence.count() / 1000));
    }
    if (!cause_.text.empty() && now - ending_since_ > kLastLimit && works(agent)) {
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
    log::info("{}: the workers save and end; a second signal ends them at once", strsignal(signals_.stop_signal()));
    for (AgentLink& agent : agents_) {
      agent.send({"signal", std::to_string(SIGTERM)});
    }
  }
}

// Workers notice by themselves that one is gone, report it and end; those that do not are killed.
void Attempt::end_all(const std::string& cause, Weight weight) {
  if (cause_.text.empty()) {
    ending_since_ = steady_clock::now();
    for (AgentLink& agent : agents_) {
      agent.send({"end", std::to_string(kGrace)});
    }
  }
  if (weight > cause_.weight) {
    cause_ = {cause, weight};
  }
}

bool Attempt::all_ended() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.ended; });
}

}  // namespace tandem::launch
