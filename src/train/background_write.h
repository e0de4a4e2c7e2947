// Writes one thing after the other in a thread of its own, and tries again what fails.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tandem::train {

class BackgroundWrite {
 public:
  // try_again: asked after a failure, in the thread; false = the failure ends the work.
  explicit BackgroundWrite(std::function<bool()> try_again) : try_again_(std::move(try_again)) {}
  // Waits for a try that is under way.
  ~BackgroundWrite() { settle(); }

  // Begins to write. What was begun before is settled first.
  void begin(std::function<void()> write);

  // Waits until the work is done. If it has failed, it is tried once more at once; returns why that failed, or "".
  std::string settle();

  // What went wrong since the last call, in a sentence; empty: nothing. Fails if the work has ended without success.
  std::string take_problem();

 private:
  void run(const std::function<void()>& write);

  const std::function<bool()> try_again_;
  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool last_try_ = false;
  std::string problem_;  // not yet taken
  std::string failure_;  // why the work ended without success
};

}  // namespace tandem::train
