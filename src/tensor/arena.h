// Memory for what one step computes: taken in order, and released all at once or back to a mark.
//
// The first step makes the arena grow; reset() merges its chunks into one, so that later steps of no larger size
// allocate nothing. Not thread-safe: one arena belongs to one step at a time.
#pragma once

#include <vector>

#include "tensor/view.h"

namespace tandem::inline tensor {

class Arena {
 public:
  using Allocate = std::function<Buffer(size_t bytes)>;

  explicit Arena(Allocate allocate) : allocate_(std::move(allocate)) {}

  // Uninitialised memory, 64-byte aligned, valid until reset or until a release to an earlier mark.
  View take(DType dtype, int64_t rows, int64_t cols);

  struct Mark {
    size_t chunk = 0;
    size_t used = 0;
  };
  Mark mark() const { return {current_, used_}; }
  void release(Mark mark);  // releases everything taken after the mark
  void reset();
  void clear();  // resets the arena and frees its memory

  // Makes room for `bytes` now, so that the first step need not grow the arena.
  void reserve(size_t bytes);

  size_t peak_bytes() const { return peak_; }        // the most that was in use at once
  size_t allocations() const { return allocated_; }  // number of requests for the backend's memory

 private:
  void add_chunk(size_t bytes);

  Allocate allocate_;
  std::vector<Buffer> chunks_;
  size_t current_ = 0;  // index of the chunk that is being filled
  size_t used_ = 0;     // bytes used in it
  size_t peak_ = 0;
  size_t allocated_ = 0;
};

}  // namespace tandem::inline tensor
