// Sums over the rows of a matrix, which ops leave in parts (there are no atomics). The parts are added up in order; one
// kernel does this for many ops if nobody needs their sums at once.
#pragma once

#include <cuda_runtime.h>

#include "backend/backend.h"

namespace tandem::backend::cuda {

// Vectors of `cols` sums each, whose parts lie side by side in rows of [count, cols].
struct Sums {
  float* to[3];
  int count, cols;
  bool accumulate;  // false: the vectors' previous contents are overwritten
};

// The sums that one kernel adds up, as its parameter.
struct SumsBatch {
  static constexpr int kMost = 64;  // fits the 4 KB that parameters may have
  struct Entry {
    Sums sums;
    const float* parts;  // [rows, sums.count * sums.cols]
    int rows, first_block;
  };
  Entry entry[kMost];
  int count = 0, blocks = 0;
};
static_assert(sizeof(SumsBatch) <= 4096);

class LateSums {
 public:
  LateSums(Buffer memory, cudaStream_t stream) : memory_(std::move(memory)), stream_(stream) {}

  int64_t capacity() const { return static_cast<int64_t>(memory_.bytes() / sizeof(float)); }  // floats
  // Memory for the parts of an op, aligned for vectors. It must be given to `add` before the next call.
  float* room(int64_t floats);
  // sums = or += parts[0] + parts[1] + ...; without rows the sums are 0. Done at once, unless held.
  void add(const Sums& sums, const float* parts, int64_t rows);
  // Held sums are done together, when memory runs out or when they are not held any more. If work failed, the next
  // hold(true) drops what was still waiting.
  void hold(bool on);

 private:
  void settle();
  void forget();

  Buffer memory_;
  cudaStream_t stream_;
  int64_t used_ = 0;  // floats
  bool held_ = false;
  SumsBatch waiting_;
};

}  // namespace tandem::backend::cuda
