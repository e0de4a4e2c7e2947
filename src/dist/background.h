// Threads besides the program's own ones, which alone handle signals: writing to a socket that a peer has closed is an
// error, not a SIGPIPE.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tandem::dist {

// Signals are blocked on the thread and on threads that it starts.
std::thread start_thread(std::function<void()> work);

// One thread that runs tasks in order.
class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue();  // waits for the queued work
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // The future rethrows the work's exception.
  std::future<void> add(std::function<void()> work);

  bool idle() const;  // nothing queued, nothing under way

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tandem::dist
