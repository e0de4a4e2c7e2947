// Turns signals into requests that the program polls between two units of work.
//
// SIGTERM and SIGINT ask it to save and stop, SIGUSR1 asks it to save and continue. A second SIGTERM or SIGINT ends the
// process at once. Only one object may exist at a time.
#pragma once

#include <csignal>

namespace tandem::inline core {

class Signals {
 public:
  Signals();   // installs the handlers
  ~Signals();  // restores the former handlers
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The number of the signal that asked to stop, or 0. If it is not 0, the program exits with 128 + number.
  int stop_signal() const;

  bool save_requested() const;  // a SIGUSR1 came and was not taken yet
  // Returns true once for every SIGUSR1 (several before one call count as one).
  bool take_save_request();

 private:
  struct sigaction old_[3] = {};
};

}  // namespace tandem::inline core
