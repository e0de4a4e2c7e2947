// A loop over independent pieces of work on a fixed number of threads.
//
// Which thread runs a piece is not fixed, so a piece must write only what belongs to it and its result must not
// depend on the number of threads: cut work by shape, never by thread count. Then the same input gives the same
// bits at any thread count.
//
// The threads are a pool of our own and not OpenMP's, because those spin while they wait: on cores that others use too,
// a step then takes many times as long. Here a thread without work spins for a moment and then sleeps, and the caller
// waits only for threads that have begun a piece, never for one that has not been given a core yet.
#pragma once

#include <cstdint>
#include <memory>

namespace tandem::inline core {

class Threads {
 public:
  // 0 = as many as this process may use (its CPU affinity, not the machine's size). Threads start with the first loop.
  explicit Threads(int count = 0);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  // Calls body(i) for every i in [0, pieces). Rethrows the first exception when all threads are done. A loop inside
  // another, or during another thread's loop, runs on its caller alone.
  template <class Body>
  void parallel_for(int64_t pieces, const Body& body) const {
    if (pieces <= 1 || count_ == 1) {
      for (int64_t i = 0; i < pieces; ++i) {
        body(i);
      }
      return;
    }
    run(
        pieces, [](const void* any, int64_t i) { (*static_cast<const Body*>(any))(i); }, &body);
  }

 private:
  class Pool;
  void run(int64_t pieces, void (*call)(const void* body, int64_t piece), const void* body) const;

  int count_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace tandem::inline core
