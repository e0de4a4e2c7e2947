// Views of memory that the arithmetic works on. A view does not own; it is a value and cheap to copy.
//
// The element type is a run-time value, so that layers are written once and run in f32, bf16 and, for gradient
// checks against central differences, in f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "core/error.h"

namespace tandem::inline tensor {

enum class DType : uint8_t { f32, bf16, f64, i32 };

constexpr size_t size_of(DType type) { return type == DType::f64 ? 8 : type == DType::bf16 ? 2 : 4; }
const char* name_of(DType type);

// The upper half of an f32. Arithmetic is done in f32; conversion rounds to nearest even, NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const uint32_t wide = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
    const uint32_t quiet_nan = (wide >> 16) | 0x40;
    bits = static_cast<uint16_t>((wide & 0x7FFFFFFF) > 0x7F800000 ? quiet_nan : rounded);
  }
  operator float() const { return __builtin_bit_cast(float, uint32_t{bits} << 16); }
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else {
    static_assert(std::is_same_v<T, int32_t>);
    return DType::i32;
  }
}

enum class Memory : uint8_t { host, device };

// A matrix [rows, cols] in row-major order; row r begins `stride` elements after row r - 1. A vector is one row.
// The empty view (no data, no rows) stands for an absent optional argument. A ConstView cannot be written through.
template <bool kConst>
struct BasicView {
  template <class T>
  using Element = std::conditional_t<kConst, const T, T>;

  Element<void>* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType dtype = DType::f32;
  Memory memory = Memory::host;

  // Converts a View to a ConstView.
  template <bool kTo>
  requires(kTo && !kConst) operator BasicView<kTo>() const { return {data, rows, cols, stride, dtype, memory}; }

  bool empty() const { return data == nullptr; }
  int64_t size() const { return rows * cols; }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype); }  // bytes of its elements
  bool contiguous() const { return stride == cols || rows <= 1; }

  // Host access to the elements; the type must match and the memory must be the host's.
  template <class T>
  Element<T>* host() const {
    require(memory == Memory::host, "host access to device memory");
    require(dtype == dtype_of<T>(), "a view of {} used as {}", name_of(dtype), name_of(dtype_of<T>()));
    return static_cast<Element<T>*>(data);
  }

  // Rows [begin, begin + count).
  BasicView slice_rows(int64_t begin, int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= rows, "rows {}+{} of a view of {} rows", begin, count, rows);
    return at(begin * stride, count, cols, stride);
  }
  // Columns [begin, begin + count).
  BasicView slice_cols(int64_t begin, int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= cols, "columns {}+{} of a view of {}", begin, count, cols);
    return at(begin, rows, count, stride);
  }
  // The same contiguous elements as another shape.
  BasicView reshape(int64_t new_rows, int64_t new_cols) const {
    require(contiguous() && new_rows * new_cols == size(), "cannot reshape {}x{} to {}x{}", rows, cols, new_rows,
            new_cols);
    return at(0, new_rows, new_cols, new_cols);
  }
  // The same memory as elements of another type of the same size.
  BasicView reinterpret(DType type) const {
    require(size_of(type) == size_of(dtype), "{} cannot be read as {}", name_of(dtype), name_of(type));
    BasicView view = *this;
    view.dtype = type;
    return view;
  }

 private:
  BasicView at(int64_t offset, int64_t new_rows, int64_t new_cols, int64_t new_stride) const {
    using Byte = Element<std::byte>;
    return {static_cast<Byte*>(data) + offset * static_cast<int64_t>(size_of(dtype)),
            new_rows,
            new_cols,
            new_stride,
            dtype,
            memory};
  }
};

using View = BasicView<false>;
using ConstView = BasicView<true>;

inline View make_view(void* data, DType dtype, int64_t rows, int64_t cols, Memory memory = Memory::host) {
  return View{data, rows, cols, cols, dtype, memory};
}

// A view of host memory that a container owns.
template <class T>
View host_view(T* data, int64_t rows, int64_t cols) {
  return make_view(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>(), rows, cols);
}

// Owned memory, on the host or a device, freed by whoever allocated it. At least 64-byte aligned.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, Memory memory, std::function<void(void*)> free)
      : data_(data, std::move(free)), bytes_(bytes), memory_(memory) {}

  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  Memory memory() const { return memory_; }

  // The buffer's beginning as a matrix.
  View view(DType dtype, int64_t rows, int64_t cols) const {
    require(static_cast<size_t>(rows * cols) * size_of(dtype) <= bytes_, "a view of {}x{} {} in {} bytes", rows, cols,
            name_of(dtype), bytes_);
    return make_view(data(), dtype, rows, cols, memory_);
  }

 private:
  std::unique_ptr<void, std::function<void(void*)>> data_{nullptr, [](void*) {}};
  size_t bytes_ = 0;
  Memory memory_ = Memory::host;
};

}  // namespace tandem::inline tensor
