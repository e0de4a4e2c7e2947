#include "launch/agent_link.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "launch/agent.h"

namespace tandem::launch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr size_t kMessageLimit = 4U << 20;
constexpr size_t kMostBeforeGreeting = 1U << 20;  // bytes that a login may print
constexpr milliseconds kExitTime{4000};           // longest time for an agent to end after its grace

std::vector<std::string> agent_arguments(const Host& host, const std::string& agent_command,
                                         const std::string& binary) {
  if (is_this_host(host.name)) {
    return {binary, "agent"};
  }
  std::vector<std::string> arguments = split_command(agent_command);
  require(!arguments.empty(), "--agent is empty: give the command that reaches a host, as in --agent \"ssh -p 4444\"");
  arguments.push_back(host.name);
  arguments.push_back(fmt::format("exec {} agent", shell_quoted(binary)));
  return arguments;
}

}  // namespace

AgentLink::AgentLink(const Host& host, const std::string& agent_command, const std::string& binary, milliseconds grace)
    : host_(host), grace_(grace), messages_(kMessageLimit), last_heard_(steady_clock::now()) {
  ChildOptions options;
  options.arguments = agent_arguments(host, agent_command, binary);
  options.takes_input = true;
  options.deaf = !is_this_host(host.name);
  child_ = start_child(options);
  send({"grace", std::to_string(grace.count())});
}

AgentLink::~AgentLink() {
  child_.in = Pipe();
  const auto deadline = dist::from_now(grace_ + kExitTime);
  while (waitpid(child_.process, nullptr, WNOHANG) == 0) {
    if (steady_clock::now() > deadline || lost()) {
      kill(-child_.process, SIGKILL);
      waitpid(child_.process, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  read_errors();
}

void AgentLink::send(const dist::Message& message) {
  const std::lock_guard lock(sending_);
  unsent_ += dist::encode(message);
  write_some(child_.in, unsent_);  // if the agent is gone, receive() will notice
}

void AgentLink::skip_to_greeting(std::string& bytes) {
  before_greeting_ += bytes;
  bytes.clear();
  const std::string greeting = kAgentGreeting;
  const size_t found = before_greeting_.find(greeting);
  if (found != std::string::npos) {
    greeted_ = true;
    bytes = before_greeting_.substr(found + greeting.size());
    before_greeting_.clear();
  } else if (before_greeting_.size() > kMostBeforeGreeting) {
    lose("the process that answers is not an agent of tandem");
  }
}

std::vector<dist::Message> AgentLink::receive() {
  std::vector<dist::Message> received;
  read_errors();
  for (std::string bytes; !lost() && read_some(child_.out, bytes); bytes.clear()) {
    last_heard_ = steady_clock::now();
    if (!greeted_) {
      skip_to_greeting(bytes);
    }
    messages_.add(bytes);
  }
  const bool ended = !lost() && !child_.out.open();
  try {
    while (auto message = messages_.next()) {
      received.push_back(*std::move(message));
    }
  } catch (const Error& error) {
    lose(error.what());
  }
  if (ended) {
    read_errors();
    lose(!last_error_.empty() ? last_error_ : greeted_ ? "its agent ended" : "the agent command ended");
  }
  const std::lock_guard lock(sending_);
  write_some(child_.in, unsent_);
  return received;
}

void AgentLink::read_errors() {
  std::vector<std::string> lines;
  while (errors_.read(child_.err, lines)) {
  }
  for (std::string& line : lines) {
    while (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    log::write_console(stderr, fmt::format("[host {}] {}\n", host_.name, dist::printable(line)));
    last_error_ = dist::printable(line, 300);
  }
}

void AgentLink::lose(const std::string& why) {
  if (lost_.empty()) {
    lost_ = why;
  }
}

void AgentLink::add_events(std::vector<pollfd>& events) const {
  if (!lost()) {
    events.push_back({child_.out.get(), POLLIN, 0});
    if (child_.err.open()) {
      events.push_back({child_.err.get(), POLLIN, 0});
    }
  }
}

}  // namespace tandem::launch
