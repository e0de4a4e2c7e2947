#include "train/background_write.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/error.h"

namespace tandem::train {

namespace {

constexpr std::chrono::seconds kFirstPause{10}, kLongestPause{300};  // between two tries
constexpr int kNice = 10;                                            // training comes first

}  // namespace

void BackgroundWrite::begin(std::function<void()> write) {
  settle();
  failure_.clear();
  last_try_ = false;
  thread_ = std::thread([this, write = std::move(write)] { run(write); });
}

void BackgroundWrite::run(const std::function<void()>& write) {
  ::setpriority(PRIO_PROCESS, 0, kNice);  // on Linux: of this thread
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    std::string failure;
    try {
      write();
      return;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const bool again = try_again_();
    std::unique_lock lock(mutex_);
    if (!again || last_try_) {
      failure_ = failure;
      return;
    }
    problem_ = failure + "; training goes on, and it is tried again";
    changed_.wait_for(lock, pause, [&] { return last_try_; });
  }
}

std::string BackgroundWrite::settle() {
  {
    const std::lock_guard lock(mutex_);
    last_try_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  return failure_;
}

std::string BackgroundWrite::take_problem() {
  const std::lock_guard lock(mutex_);
  require(failure_.empty(), "{}", failure_);
  return std::exchange(problem_, "");
}

}  // namespace tandem::train
