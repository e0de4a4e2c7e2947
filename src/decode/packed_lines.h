// Tables of integers for upload to the backend, and packed sentences made of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/batch.h"
#include "tensor/arena.h"
#include "text/subwords.h"

namespace tandem::decode {

// Host tables that are uploaded to the backend together. Their memory is reused for later ones.
class UploadTables {
 public:
  void clear() { used_ = 0; }
  // Returns the position at which the table begins; write its content through at().
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
  std::vector<int32_t> numbers_;  // the first `used_` are in use
  int64_t used_ = 0;
  View view_;
};

// Packs sentences, given as ids without bos and eos, one after the other without padding.
class PackedLines {
 public:
  void add_source(std::span<const int32_t> ids) {  // w1..wn eos
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    tokens_.push_back(text::kEos);
    end_sentence(ids.size() + 1);
  }
  void add_target(std::span<const int32_t> ids) {  // bos w1..wn
    tokens_.push_back(text::kBos);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    end_sentence(ids.size() + 1);
  }

  int32_t rows() const { return starts_.back(); }

  // Valid until the arena is reset.
  model::PackedSide upload(backend::Backend& backend, Arena& arena) const {
    UploadTables tables;
    const int64_t tokens_at = tables.add(tokens_), position_at = tables.add(position_), starts_at = tables.add(starts_);
    tables.upload(backend, arena);
    model::PackedSide side;
    side.tokens = tables.table(tokens_at, 1, static_cast<int64_t>(tokens_.size()));
    side.position = tables.table(position_at, 1, static_cast<int64_t>(position_.size()));
    side.starts = tables.table(starts_at, 1, static_cast<int64_t>(starts_.size()));
    side.longest = longest_;
    return side;
  }

 private:
  void end_sentence(size_t length) {
    for (size_t i = 0; i < length; ++i) {
      position_.push_back(static_cast<int32_t>(i));
    }
    starts_.push_back(static_cast<int32_t>(tokens_.size()));
    longest_ = std::max(longest_, static_cast<int64_t>(length));
  }

  std::vector<int32_t> tokens_, position_, starts_{0};
  int64_t longest_ = 0;
};

}  // namespace tandem::decode
