// One thread that does what it is given, in order. Signals are blocked on it and on the threads that its work starts:
// the program's own threads handle them, and writing to a socket that a peer has closed is an error, not a SIGPIPE.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tandem {

class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue();  // after what is queued
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // The future gives what the work throws.
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

}  // namespace tandem
