// A program started with pipes to its standard streams.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "core/file.h"

namespace tandem::launch {

using Pipe = Descriptor;

struct ChildOptions {
  std::vector<std::string> arguments;    // the program first; found through PATH
  std::vector<std::string> environment;  // NAME=VALUE, in addition to this process's
  std::string directory;                 // working directory; empty: this process's
  bool takes_input = false;              // otherwise it reads /dev/null
  int inherits = -1;                     // a descriptor that it inherits
  bool dies_with_us = false;             // SIGKILL when the thread that started it ends
  bool deaf = false;                     // begins with SIGINT, SIGTERM and SIGHUP ignored, which ssh respects
};

struct Child {
  pid_t process = -1;  // leads its own process group, so that a terminal's Ctrl-C does not reach it
  Pipe in, out, err;   // non-blocking on this side
};

// Fails with the system's reason if the program cannot be started.
Child start_child(const ChildOptions& options);

// How a process ended: "exited with code 1", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

// Appends a part of the available output and returns whether there was any. Closes the pipe at the end of the stream.
bool read_some(Pipe& pipe, std::string& bytes);

// Writes what the reader takes now, and removes it from `bytes`. Closes the pipe if the reader is gone.
void write_some(Pipe& pipe, std::string& bytes);

// While a pipe is used: its reads and writes do not wait.
void set_nonblocking(const Pipe& pipe);

// Splits a stream into lines; one of more than 64 KB is cut into several.
class PipeLines {
 public:
  // Does the same as read_some(). At the end of the stream the text after the last line's end is a line, too.
  bool read(Pipe& pipe, std::vector<std::string>& lines);

 private:
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

}  // namespace tandem::launch
