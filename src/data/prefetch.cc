#include "data/prefetch.h"

#include <algorithm>

namespace tandem::data {

Prefetcher::Prefetcher(std::function<TrainStep()> produce, size_t depth)
    : produce_(std::move(produce)), depth_(std::max<size_t>(depth, 1)), thread_([this] { run(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
    if (stop_) {
      return;
    }
    lock.unlock();
    TrainStep step;
    std::exception_ptr error;
    try {
      step = produce_();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ready_.push_back(std::move(step));
    }
    changed_.notify_all();
    if (error) {
      return;
    }
  }
}

TrainStep Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || error_; });
  if (ready_.empty()) {
    std::rethrow_exception(error_);
  }
  TrainStep step = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return step;
}

}  // namespace tandem::data
