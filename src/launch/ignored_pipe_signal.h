// While this exists, writing to a process that is gone is an error and not the end of this one.
#pragma once

#include <csignal>

namespace tandem {

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
