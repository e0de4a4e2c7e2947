#include "core/signals.h"

#include <atomic>

namespace tandem::inline core {

namespace {

// A handler can reach nothing but static storage.
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

void install(int number, void (*handler)(int), struct sigaction& old) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, &old);
}

}  // namespace

Signals::Signals() {
  stop = 0;
  save = false;
  install(SIGINT, on_stop, old_int_);
  install(SIGTERM, on_stop, old_term_);
  install(SIGUSR1, on_save, old_usr1_);
}

Signals::~Signals() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGUSR1, &old_usr1_, nullptr);
}

int Signals::stop_signal() const { return stop; }

bool Signals::save_requested() const { return save; }

bool Signals::take_save_request() { return save.exchange(false); }

}  // namespace tandem::inline core
