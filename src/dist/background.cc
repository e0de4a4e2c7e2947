#include "dist/background.h"

#include <csignal>

namespace tandem::dist {

std::thread start_thread(std::function<void()> work) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return thread;
}

WorkQueue::WorkQueue() : thread_(start_thread([this] { run(); })) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::future<void> WorkQueue::add(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return done;
}

bool WorkQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !busy_;
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
  }
}

}  // namespace tandem::dist
