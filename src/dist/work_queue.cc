#include "dist/work_queue.h"

#include <pthread.h>

#include <csignal>

namespace tandem::dist {

WorkQueue::WorkQueue() : thread_([this] { run(); }) {}

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
  sigset_t all;  // never unblocked again: a pending SIGPIPE would end the process
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

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
