// Signals as requests that the program reads between two pieces of work.
//
// SIGTERM and SIGINT ask to save and stop, SIGUSR1 asks to save and go on. A second SIGTERM or SIGINT ends the process
// at once. At most one object at a time.
#pragma once

#include <csignal>

namespace tandem {

class Signals {
 public:
  Signals();   // installs the handlers
  ~Signals();  // puts back what was there
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The number of the signal that asked to stop, or 0. The exit code is then 128 + number.
  int stop_signal() const;

  bool save_requested() const;  // by SIGUSR1, and not taken yet
  // True once for every SIGUSR1 (several before one call count as one).
  bool take_save_request();

 private:
  struct sigaction old_int_ {
  }, old_term_{}, old_usr1_{};
};

}  // namespace tandem
