#include "tensor/arena.h"

#include <algorithm>

namespace tandem::inline tensor {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestChunk = size_t{1} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void Arena::add_chunk(size_t bytes) {
  chunks_.push_back(allocate_(std::max(bytes, kSmallestChunk)));
  ++allocated_;
}

View Arena::take(DType dtype, int64_t rows, int64_t cols) {
  require(rows >= 0 && cols >= 0, "cannot take {}x{} from an arena", rows, cols);
  const size_t bytes = aligned(std::max<size_t>(1, static_cast<size_t>(rows * cols) * size_of(dtype)));
  if (chunks_.empty()) {
    add_chunk(bytes);
  }
  while (used_ + bytes > chunks_[current_].bytes()) {
    if (current_ + 1 == chunks_.size()) {
      add_chunk(std::max(bytes, chunks_[current_].bytes()));
    }
    ++current_;
    used_ = 0;
  }
  void* data = static_cast<std::byte*>(chunks_[current_].data()) + used_;
  used_ += bytes;
  size_t in_use = used_;
  for (size_t i = 0; i < current_; ++i) {
    in_use += chunks_[i].bytes();
  }
  peak_ = std::max(peak_, in_use);
  return make_view(data, dtype, rows, cols, chunks_[current_].memory());
}

void Arena::release(Mark mark) {
  current_ = mark.chunk;
  used_ = mark.used;
}

void Arena::reset() {
  if (chunks_.size() > 1) {
    size_t total = 0;
    for (const Buffer& chunk : chunks_) {
      total += chunk.bytes();
    }
    clear();
    add_chunk(total);
  }
  release({});
}

void Arena::clear() {
  chunks_.clear();
  release({});
}

void Arena::reserve(size_t bytes) {
  require(current_ == 0 && used_ == 0, "an arena in use cannot be reserved");
  if (chunks_.empty() || chunks_[0].bytes() < bytes) {
    chunks_.clear();
    add_chunk(bytes);
  }
}

}  // namespace tandem::inline tensor
