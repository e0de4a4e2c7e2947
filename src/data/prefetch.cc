#include "data/prefetch.h"

#include <algorithm>

namespace tandem::data {

Prefetcher::Prefetcher(std::function<TrainStep()> produce, size_t depth)
    : produce_(std::move(produce)),
      depth_(std::max<size_t>(depth, 1)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Prefetcher::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return ready_.size() < depth_; }) && !stop.stop_requested() && !error_) {
    lock.unlock();
    TrainStep step;
    std::exception_ptr error;
    try {
      step = produce_();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    if (!error) {
      ready_.push_back(std::move(step));
    }
    changed_.notify_all();
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
