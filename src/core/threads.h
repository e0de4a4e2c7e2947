// A loop over independent pieces of work on a fixed number of threads.
//
// Which thread runs a piece is not fixed, so a piece must write only what belongs to it and its result must not
// depend on the number of threads: cut work by shape, never by thread count. Then the same input gives the same
// bits at any thread count.
#pragma once

#include <cstdint>
#include <exception>

namespace tandem {

class Threads {
 public:
  // 0 = as many as this process may use (its CPU affinity, not the machine's size).
  explicit Threads(int count = 0);

  int count() const { return count_; }

  // Calls body(i) for every i in [0, pieces). The first exception is thrown again when all threads are done.
  template <class Body>
  void parallel_for(int64_t pieces, const Body& body) const {
    if (pieces <= 1 || count_ == 1) {
      for (int64_t i = 0; i < pieces; ++i) {
        body(i);
      }
      return;
    }
    std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(count_)
    for (int64_t i = 0; i < pieces; ++i) {
      try {
        body(i);
      } catch (...) {
#pragma omp critical(tandem_parallel_for)
        error = error ? error : std::current_exception();
      }
    }
    if (error) {
      std::rethrow_exception(error);
    }
  }

 private:
  int count_;
};

}  // namespace tandem
