#include "dist/heartbeat.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "dist/background.h"

namespace tandem::dist {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTick{100};

}  // namespace

Heartbeat::Heartbeat(RendezvousClient connection, std::string self, std::string rank_0,
                     const ProcessGroupOptions& options)
    : connection_(std::move(connection)),
      self_(std::move(self)),
      options_(options),
      last_heard_(Clock::now()),
      rank_0_(std::move(rank_0)) {
  thread_ = start_thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  bool early = false;
  {
    const std::lock_guard lock(mutex_);
    early = !left_ && failure_.empty();
    end_ = true;
  }
  if (early) {
    try {
      const std::lock_guard lock(sending_);
      connection_.send({"stop", self_ + " ended before the others; look at its log"});
    } catch (const Error&) {  // the others see the closed connection
    }
  }
  changed_.notify_all();
  thread_.join();
  if (watchdog_.joinable()) {
    watchdog_.join();
  }
}

void Heartbeat::run() {
  auto last_run = Clock::now();
  auto next_beat = last_run;
  const auto running = [this] {
    const std::lock_guard lock(mutex_);
    return !end_ && !left_ && failure_.empty();
  };
  try {
    while (running()) {
      if (Clock::now() >= next_beat) {
        const std::lock_guard lock(sending_);
        connection_.send({"beat"});
        next_beat = from_now(options_.heartbeat);
      }
      if (listen(std::min(next_beat, from_now(kTick)))) {
        last_heard_ = Clock::now();
      }
      const auto now = Clock::now();
      const auto missed = now - std::exchange(last_run, now);
      const std::lock_guard lock(mutex_);
      require(missed <= options_.silence, "{} was stopped for {:.0f} s, and the other ranks took it for dead", self_,
              to_seconds(missed));
      require(now - last_heard_ <= options_.silence,
              "{} received nothing from {} for {:.0f} s: one of them is stopped, or cut off from the network", self_,
              rank_0_, to_seconds(options_.silence));
    }
  } catch (const Error& error) {
    fail_with(error.what());
  }
}

// Returns whether a message of rank 0 came before the deadline.
bool Heartbeat::listen(Deadline deadline) {
  std::optional<Message> message;
  try {
    message = connection_.receive(deadline);
  } catch (const Altered& error) {
    fail("{} received from {}: {}", self_, rank_0_, error.what());
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    if (left_ || end_) {
      return false;
    }
    fail("{} is gone: its connection to {} closed; its process ended or was killed (look at its log)", rank_0_, self_);
  }
  if (!message) {
    return false;
  }
  if (message->front() == "failure") {
    fail_with(printable(field_of(*message, 1)));
  } else if (message->front() == "left") {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }
  return true;
}

void Heartbeat::fail_with(const std::string& reason) {
  std::vector<std::function<void(const std::string&)>> actions;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty() || left_) {
      return;
    }
    failure_ = reason;
    actions = actions_;
    if (options_.exit_after.count() > 0) {
      watchdog_ = start_thread([this] { end_process_after(options_.exit_after); });
    }
  }
  changed_.notify_all();
  for (const auto& action : actions) {
    action(reason);
  }
}

// The main thread may be in a call that no error interrupts.
void Heartbeat::end_process_after(milliseconds grace) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, grace, [this] { return end_; })) {
    std::fprintf(stderr, "tandem: %s\n", failure_.c_str());
    std::fflush(stderr);
    _exit(1);
  }
}

std::string Heartbeat::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string Heartbeat::wait_for_failure(milliseconds longest) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [this] { return !failure_.empty(); });
  return failure_;
}

void Heartbeat::on_failure(std::function<void(const std::string&)> action) {
  std::unique_lock lock(mutex_);
  if (failure_.empty()) {
    actions_.push_back(std::move(action));
    return;
  }
  lock.unlock();
  action(failure_);  // it never changes again
}

void Heartbeat::set_rank_0(const std::string& name) {
  const std::lock_guard lock(mutex_);
  rank_0_ = name;
}

void Heartbeat::stop(const std::string& reason) {
  {
    const std::lock_guard lock(sending_);
    try {
      connection_.send({"stop", reason});
    } catch (const Error&) {  // the others see the closed connection
    }
  }
  fail_with(reason);
}

void Heartbeat::leave() {
  try {
    const std::lock_guard lock(sending_);
    connection_.send({"leave"});
  } catch (const Error&) {  // failure() says why
  }
  std::unique_lock lock(mutex_);
  const bool heard =
      changed_.wait_for(lock, options_.collective_timeout, [this] { return left_ || !failure_.empty(); });
  require(failure_.empty(), "{}", failure_);
  require(heard, "{} waited {:.0f} s in vain for the other ranks to end", self_,
          to_seconds(options_.collective_timeout));
}

}  // namespace tandem::dist
