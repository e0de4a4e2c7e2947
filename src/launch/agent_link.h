// The launcher's end of the connection to an agent.
#pragma once

#include <poll.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "dist/message.h"
#include "dist/socket.h"
#include "launch/child.h"
#include "launch/launch.h"

namespace tandem::launch {

class AgentLink {
 public:
  // Starts the agent: directly on this host, otherwise through the agent command ("ssh ..."), which gets the host and
  // one argument, a shell command. `grace`: the time that the agent gives its workers if the launcher is gone.
  AgentLink(const Host& host, const std::string& agent_command, const std::string& binary,
            std::chrono::milliseconds grace);
  ~AgentLink();  // closes the stream; an agent that does not end seconds after its grace is killed
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const Host& host() const { return host_; }
  bool greeted() const { return greeted_; }
  bool lost() const { return !lost_.empty(); }
  const std::string& why_lost() const { return lost_; }
  dist::Deadline last_heard() const { return last_heard_; }

  // Never waits: messages that the agent does not take yet are buffered. Any thread may call send().
  void send(const dist::Message& message);
  // Returns the messages that have come. Prints the agent's own error output to standard error with the host's name.
  std::vector<dist::Message> receive();
  void lose(const std::string& why);
  void add_events(std::vector<pollfd>& events) const;

 private:
  void skip_to_greeting(std::string& bytes);
  void read_errors();

  const Host host_;
  const std::chrono::milliseconds grace_;
  Child child_;
  dist::MessageReader messages_;
  PipeLines errors_;
  std::string last_error_;
  std::string before_greeting_;
  bool greeted_ = false;
  std::string lost_;
  dist::Deadline last_heard_;
  std::mutex sending_;
  std::string unsent_;
};

}  // namespace tandem::launch
