// Turns signals into requests that the program polls between two units of work.
//
// SIGTERM, SIGINT and SIGHUP ask it to stop, SIGUSR1 asks it to save and continue. A SIGHUP that was ignored when the
// process started (nohup) stays ignored. Only one object may exist at a time.
#pragma once

#include <csignal>

namespace tandem::inline core {

inline constexpr int kUsualGrace = 30;  // seconds that a run has to save and end

class Signals {
 public:
  // Installs the handlers. Without a grace, a second request to stop ends the process at once. With one, further
  // requests change nothing, and a process that still runs so many seconds after the first ends with code 1 and says
  // so.
  explicit Signals(int grace_seconds = 0);
  ~Signals();  // restores the former handlers
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The number of the first signal that asked to stop, or 0. If it is not 0, the program exits with 128 + number.
  int stop_signal() const;

  bool save_requested() const;  // a SIGUSR1 came and was not taken yet
  // Returns true once for every SIGUSR1 (several before one call count as one).
  bool take_save_request();

 private:
  struct sigaction old_[6] = {};
};

}  // namespace tandem::inline core
