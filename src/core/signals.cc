#include "core/signals.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace tandem::inline core {

namespace {

// Static, because a signal handler can reach nothing else.
std::atomic<int> stop{0};
std::atomic<int> grace{0};
std::atomic<bool> save{false};
char late_text[160];
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_stop(int number) {
  int none = 0;
  const bool first = stop.compare_exchange_strong(none, number);
  if (first && grace > 0) {
    ::signal(SIGPIPE, SIG_IGN);  // the same signal may have ended the reader of our output
    ::alarm(grace);
  } else if (!first && grace == 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // delivered as soon as this handler returns
  }
}

void on_late(int) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, late_text, std::strlen(late_text));
  ::_exit(1);
}

void on_save(int) { save = true; }

struct Handler {
  int number;
  void (*function)(int);  // null: only restored at the end
};
constexpr Handler kHandlers[] = {{SIGINT, on_stop},  {SIGTERM, on_stop}, {SIGHUP, on_stop},
                                 {SIGUSR1, on_save}, {SIGALRM, on_late}, {SIGPIPE, nullptr}};

}  // namespace

Signals::Signals(int grace_seconds) {
  static_assert(std::size(kHandlers) == std::extent_v<decltype(old_)>);
  stop = 0;
  save = false;
  grace = grace_seconds;
  std::snprintf(late_text, sizeof late_text,
                "tandem: %d s after the signal to stop, this process had not saved and ended: set a longer "
                "stop.grace_seconds\n",
                grace_seconds);
  for (size_t i = 0; i < std::size(kHandlers); ++i) {
    const auto [number, function] = kHandlers[i];
    ::sigaction(number, nullptr, &old_[i]);
    if (function == nullptr || (number == SIGHUP && old_[i].sa_handler == SIG_IGN)) {
      continue;
    }
    struct sigaction action {};
    action.sa_handler = function;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

Signals::~Signals() {
  ::alarm(0);
  for (size_t i = 0; i < std::size(kHandlers); ++i) {
    ::sigaction(kHandlers[i].number, &old_[i], nullptr);
  }
}

int Signals::stop_signal() const { return stop; }

bool Signals::save_requested() const { return save; }

bool Signals::take_save_request() { return save.exchange(false); }

}  // namespace tandem::inline core
