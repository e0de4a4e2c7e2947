// Memory of all decoder layers' keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace tandem::decode {

// Grows by doubling and is kept from batch to batch.
class KeyValueCache {
 public:
  KeyValueCache(backend::Backend& backend, const model::ModelConfig& config, DType dtype);

  // Makes room for `rows` rows; the first `used` rows keep their content.
  void reserve(int64_t rows, int64_t used);
  void clear();  // holds no memory

  std::span<const View> keys() const { return keys_; }      // for each layer [capacity, D]
  std::span<const View> values() const { return values_; }  //

 private:
  backend::Backend& backend_;
  int64_t layers_, width_;
  DType dtype_;
  int64_t capacity_ = 0;
  Buffer buffer_;
  std::vector<View> keys_, values_;
};

}  // namespace tandem::decode
