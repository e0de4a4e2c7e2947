// Prepares training steps ahead of time on a thread of its own, so that the trainer does not wait for data.
//
// The steps come in the order in which they were produced. One consumer.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "data/batcher.h"

namespace tandem::data {

class Prefetcher {
 public:
  // `produce` runs on the prefetcher's thread until the prefetcher is destroyed, which waits only for the step
  // that is being produced; at most `depth` steps lie ready.
  explicit Prefetcher(std::function<TrainStep()> produce, size_t depth = 4);

  // Returns the next step. An error of `produce` is thrown here after the steps before it, and by every later call.
  TrainStep next();

 private:
  void run(const std::stop_token& stop);

  std::function<TrainStep()> produce_;
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<TrainStep> ready_;
  std::exception_ptr error_;
  std::jthread thread_;  // last, so that everything it uses exists when it starts and until it ends
};

}  // namespace tandem::data
