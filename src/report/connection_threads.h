// Gives every connection of a server its own thread, up to a limit: a listener to events keeps its thread. Threads are
// started when needed and stay. At the limit the server accepts no more until a connection ends, so that neither
// threads nor memory grow.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::report {

class ConnectionThreads : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(size_t most) : most_(most) {}

  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [&] { return stopping_ || busy_ + jobs_.size() < most_; });
    jobs_.push_back(std::move(job));
    if (busy_ + jobs_.size() > threads_.size()) {
      threads_.emplace_back([this] { work(); });
    }
    wake_.notify_one();
  }

  // Waiting jobs are run first, so that they close their connections.
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    free_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      ++busy_;
      lock.unlock();
      job();
      lock.lock();
      --busy_;
      free_.notify_one();
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_, free_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  size_t busy_ = 0;
  bool stopping_ = false;
};

}  // namespace tandem::report
