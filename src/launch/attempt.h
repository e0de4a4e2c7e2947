// One start of all workers, until all have ended.
#pragma once

#include <atomic>
#include <list>
#include <thread>

#include "core/signals.h"
#include "launch/agent_link.h"
#include "launch/launch.h"

namespace tandem::launch {

class Attempt {
 public:
  Attempt(const LaunchOptions& options, const std::vector<Host>& hosts, const Signals& signals);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Returns the first cause of a failure, or "".
  std::string run();

  // Hosts that did not answer, or stopped answering.
  std::vector<std::string> lost_hosts() const;

 private:
  struct Worker {
    int rank = 0;
    AgentLink* agent = nullptr;
    bool ended = false;
    std::string last_error;  // its last line on standard error
  };
  // The kinds of causes that end an attempt; a later kind explains more.
  enum class Weight { none, news_of_another, own_error, lost_host, killed };
  struct Cause {
    std::string text;
    Weight weight = Weight::none;
  };

  void wait_for_greetings();
  std::string find_rendezvous();
  void start_workers(const std::string& rendezvous);
  void wait_for_events();
  void handle(AgentLink& agent, const dist::Message& message);
  void handle_exit(const dist::Message& message);
  void look_at_clock();
  void end_all(const std::string& cause, Weight weight);
  bool all_ended() const;
  bool works(const AgentLink& agent) const;  // has a worker that has not ended
  void beat();

  const LaunchOptions& options_;
  const Signals& signals_;
  std::list<AgentLink> agents_;
  std::vector<Worker> workers_;  // by rank
  std::vector<std::string> addresses_;
  int port_ = 0;
  Cause cause_;
  dist::Deadline ending_since_, looked_;
  bool signalled_ = false;
  std::atomic<bool> done_ = false;
  std::thread heartbeat_thread_;  // sends heartbeats even while our own output waits for a terminal
};

}  // namespace tandem::launch
