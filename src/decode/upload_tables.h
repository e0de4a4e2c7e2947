// Tables of whole numbers that go to the backend together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "tensor/arena.h"

namespace tandem::decode {

// Host tables that travel to the backend in one upload. Their memory is kept for the next ones.
class UploadTables {
 public:
  void clear() { used_ = 0; }
  // Returns where the table begins; what it holds is written through at().
  int64_t add(int64_t count) {
    const int64_t begin = used_;
    used_ += count;
    numbers_.resize(std::max(numbers_.size(), static_cast<size_t>(used_)));
    return begin;
  }
  int64_t add(std::span<const int32_t> table) {
    const int64_t begin = add(static_cast<int64_t>(table.size()));
    std::copy(table.begin(), table.end(), at(begin));
    return begin;
  }
  int32_t* at(int64_t begin) { return numbers_.data() + begin; }
  void upload(backend::Backend& backend, Arena& arena) {
    view_ = arena.take(DType::i32, 1, used_);
    backend.upload(view_, numbers_.data());
  }
  View table(int64_t begin, int64_t rows, int64_t cols) const {
    return view_.slice_cols(begin, rows * cols).reshape(rows, cols);
  }

 private:
  std::vector<int32_t> numbers_;  // the first `used_` of them
  int64_t used_ = 0;
  View view_;
};

}  // namespace tandem::decode
