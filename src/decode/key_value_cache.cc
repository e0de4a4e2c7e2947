#include "decode/key_value_cache.h"

#include <algorithm>

namespace tandem::decode {

KeyValueCache::KeyValueCache(backend::Backend& backend, const model::ModelConfig& config, DType dtype)
    : backend_(backend), layers_(config.decoder_layers), width_(config.width), dtype_(dtype) {}

void KeyValueCache::reserve(int64_t rows, int64_t used) {
  constexpr int64_t kSmallest = 1024;
  if (rows <= capacity_) {
    return;
  }
  const int64_t capacity = std::max({rows, 2 * capacity_, kSmallest});
  Buffer buffer = backend_.allocate(static_cast<size_t>(2 * layers_ * capacity * width_) * size_of(dtype_));
  const View all = buffer.view(dtype_, 2 * layers_ * capacity, width_);
  std::vector<View> keys, values;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    keys.push_back(all.slice_rows(2 * layer * capacity, capacity));
    values.push_back(all.slice_rows((2 * layer + 1) * capacity, capacity));
    if (used > 0) {
      backend_.copy(keys.back().slice_rows(0, used), keys_[static_cast<size_t>(layer)].slice_rows(0, used));
      backend_.copy(values.back().slice_rows(0, used), values_[static_cast<size_t>(layer)].slice_rows(0, used));
    }
  }
  buffer_ = std::move(buffer);
  keys_ = std::move(keys);
  values_ = std::move(values);
  capacity_ = capacity;
}

void KeyValueCache::clear() {
  buffer_ = {};
  keys_.clear();
  values_.clear();
  capacity_ = 0;
}

}  // namespace tandem::decode
