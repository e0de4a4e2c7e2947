// Runs on each host on behalf of the launcher: starts that host's workers, relays their output, and ends them when the
// launcher is gone.
//
// It communicates over its standard streams, which ssh carries, with the messages of dist/message.h after one line of
// greeting (so that text printed by a login shell before it does no harm). From the launcher:
//   {"listen", "local" or "any"}                       answered by {"listening", port, address, ...}
//   {"start", rank, directory, "listener" or "", number of arguments, argument, ..., NAME=VALUE, ...}
//   {"signal", number}                                 for all workers
//   {"end", milliseconds}                              workers that live after that time are killed
//   {"beat"}                                           once a second
// To the launcher:
//   {"out" or "err", rank, line}   {"exited", rank, wait status, "ordered" or ""}   {"failed", reason}   {"beat"}
// A worker leads a process group. The system kills it if the agent dies; if the launcher closes the stream or sends
// nothing for six seconds, it gets SIGTERM and two seconds later SIGKILL.
#pragma once

#include <list>
#include <optional>
#include <string>

#include "dist/message.h"
#include "launch/child.h"

namespace tandem::launch {

inline constexpr const char* kAgentGreeting = "tandem agent 1\n";

class Agent {
 public:
  Agent(int in, int out);  // the caller keeps the descriptors

  // Returns when the launcher has closed the stream and all workers have ended.
  void run();

 private:
  struct Worker {
    int rank = 0;
    Child child;
    PipeLines out, err;
    std::optional<int> wait_status;
    bool ordered = false;  // this agent ended it
  };

  void wait_for_events();
  void read_orders();
  void write();
  void send(const dist::Message& message);
  void handle(const dist::Message& message);
  void listen(bool local);
  void start(const dist::Message& message);
  void relay(Worker& worker);
  bool relay_stream(Pipe& pipe, PipeLines& reader, const char* kind, int rank);
  void reap();
  void signal_all(int number);
  void look_at_clock();
  void lose_launcher();

  const int in_, out_;
  dist::MessageReader orders_;
  std::string unsent_;
  dist::Socket listener_;
  std::list<Worker> workers_;
  dist::Deadline last_heard_, last_beat_;
  std::optional<dist::Deadline> kill_at_;
  bool launcher_gone_ = false;
};

}  // namespace tandem::launch
