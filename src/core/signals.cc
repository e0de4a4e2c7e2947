#include "core/signals.h"

#include <atomic>
#include <iterator>

namespace tandem::inline core {

namespace {

// Static, because a signal handler can reach nothing else.
std::atomic<int> stop{0};
std::atomic<bool> save{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_stop(int number) {
  if (stop.exchange(number) != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // delivered as soon as this handler returns
  }
}

void on_save(int) { save = true; }

constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGUSR1};

}  // namespace

Signals::Signals() {
  stop = 0;
  save = false;
  for (size_t i = 0; i < std::size(kNumbers); ++i) {
    struct sigaction action {};
    action.sa_handler = kNumbers[i] == SIGUSR1 ? on_save : on_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(kNumbers[i], &action, &old_[i]);
  }
}

Signals::~Signals() {
  for (size_t i = 0; i < std::size(kNumbers); ++i) {
    ::sigaction(kNumbers[i], &old_[i], nullptr);
  }
}

int Signals::stop_signal() const { return stop; }

bool Signals::save_requested() const { return save; }

bool Signals::take_save_request() { return save.exchange(false); }

}  // namespace tandem::inline core
