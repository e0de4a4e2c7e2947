// What the emulated GPU's driver writes into a CUtensorMap: a matrix of numbers of 16 bits, and the boxes in which the
// copy engine moves it, with rows of 128 bytes whose pieces are swapped (CU_TENSOR_MAP_SWIZZLE_128B).
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated {

struct TensorMap {
  static constexpr uint64_t kMagic = 0x70616D20726F736E;
  static constexpr size_t kRowBytes = 128;  // of a box
  static constexpr int64_t kCols = 64;

  uint64_t magic = kMagic;
  uint64_t data = 0;
  int64_t cols = 0, rows = 0, stride = 0;  // the stride in bytes
  int64_t box_rows = 0;

  size_t box_bytes() const { return static_cast<size_t>(box_rows) * kRowBytes; }
};

// Of pieces of 16 bytes, eight in a row, row r % 8 of a pattern of 1,024 bytes has piece p at p ^ r.
inline size_t swizzled(size_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace emulated
