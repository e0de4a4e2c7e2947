// Brings a packed micro-batch from the host into the backend's memory.
#pragma once

#include "data/batcher.h"
#include "model/batch.h"
#include "tensor/arena.h"

namespace tandem {

// Views in `arena`, valid until its reset. `state` may be null (evaluation).
Batch upload_batch(Backend& backend, Arena& arena, const HostBatch& host, const StepState* state);
PackedSide upload_side(Backend& backend, Arena& arena, const HostSide& host);

// One T in the backend's memory, written and read whole.
template <class T>
class DeviceValue {
  static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceValue(Backend& backend) : backend_(backend), buffer_(backend.allocate(sizeof(T))) {}

  T* pointer() const { return static_cast<T*>(buffer_.data()); }
  void set(const T& value) { backend_.upload(words(), &value); }
  T get() const {
    T value;
    backend_.download(&value, words());
    return value;
  }

 private:
  View words() const { return buffer_.view(DType::i32, 1, sizeof(T) / 4); }

  Backend& backend_;
  Buffer buffer_;
};

}  // namespace tandem
