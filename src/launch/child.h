// A program started with pipes to its standard streams.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "dist/socket.h"

namespace tandem {

using Pipe = Socket;  // an owned descriptor, too

struct ChildOptions {
  std::vector<std::string> arguments;    // the program first; found through PATH
  std::vector<std::string> environment;  // NAME=VALUE, in addition to this process's
  std::string directory;                 // where it starts; empty: here
  bool takes_input = false;              // otherwise it reads /dev/null
  int inherits = -1;                     // a descriptor that stays open in it
  bool dies_with_us = false;             // SIGKILL when the thread that started it ends
};

struct Child {
  pid_t process = -1;  // leads a process group of its own, so that a terminal's Ctrl-C does not reach it
  Pipe in, out, err;   // none of ours blocks
};

// Fails where the program cannot be started, with the system's reason.
Child start_child(const ChildOptions& options);

// How a process ended: "exited with code 1", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

// Lines out of a stream; one of more than 64 KB is cut into several.
class PipeLines {
 public:
  enum class State { some, nothing_now, ended };
  // Reads a piece of what is there.
  State read(const Pipe& pipe, std::vector<std::string>& lines);
  // What came after the last line's end.
  std::vector<std::string> rest();

 private:
  void cut(std::vector<std::string>& lines);
  std::string bytes_;
};

// While this exists, writing to a pipe whose reader is gone is an error (EPIPE) and does not kill this process.
class IgnoredPipeSignal {
 public:
  IgnoredPipeSignal() : old_(signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredPipeSignal() { signal(SIGPIPE, old_); }
  IgnoredPipeSignal(const IgnoredPipeSignal&) = delete;
  IgnoredPipeSignal& operator=(const IgnoredPipeSignal&) = delete;

 private:
  void (*old_)(int);
};

}  // namespace tandem
