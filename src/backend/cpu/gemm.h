// Blocks of matrix products. A product is cut into blocks by its shape, and each block is computed by one thread in a
// fixed order, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/threads.h"
#include "tensor/view.h"

namespace tandem::backend {

// A factor of a product. Element (i, j) is data[i * stride + j], or data[j * stride + i] if transposed.
template <class T>
struct Factor {
  const T* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

template <class T>
struct Target {
  T* data = nullptr;
  int64_t stride = 0;
  bool add = false;  // += instead of =
};

// c [m, n] = (or +=) a [m, k] b [k, n], on the calling thread alone. Sums have the type of c. If a is not transposed,
// the bits of a row of c depend neither on m nor on the other rows (f32, f64).
void multiply(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n, int64_t k);
void multiply(const Target<float>& c, const Factor<bf16>& a, const Factor<bf16>& b, int64_t m, int64_t n, int64_t k);
void multiply(const Target<double>& c, const Factor<double>& a, const Factor<double>& b, int64_t m, int64_t n,
              int64_t k);

// Limits oneDNN to one thread during its lifetime, whether the caller is inside a parallel loop or not.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int kept_;
};

bool onednn_uses_avx512();

// A block of a matrix: rows [row, row + rows), columns [col, col + cols).
struct Block {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t col = 0;
  int64_t cols = 0;
};

// The sizes of the blocks of a [rows, cols] product of activations of type T and weights, measured with bench/gemm.cc.
// f32: large, since oneDNN repacks its operands for every block, but with enough blocks for the threads; rows are a
// multiple of 24 and 16 (gemm_f32.cc). bf16: a multiple of 64 rows (gemm_bf16.cc), and small enough that a block's f32
// sums stay in the cache until they are rounded. A few rows (decoding) are cut into narrow blocks; widths of 128 and
// more give the same bits.
struct BlockSize {
  int64_t rows, cols;

  template <class T>
  static BlockSize of(int64_t all_rows, int64_t all_cols) {
    constexpr bool kNarrow = std::is_same_v<T, bf16>;
    constexpr int64_t kBlocks = 8, kLeastRows = kNarrow ? 128 : 240;
    const int64_t least_cols = all_rows <= kLeastRows ? 128 : 512;
    BlockSize size = kNarrow ? BlockSize{256, 512} : BlockSize{960, 2048};
    while (size.down(all_rows) * size.across(all_cols) < kBlocks &&
           (size.rows > kLeastRows || size.cols > least_cols)) {
      (size.cols >= 2 * size.rows || size.rows == kLeastRows ? size.cols : size.rows) /= 2;
    }
    return size;
  }

  int64_t down(int64_t all_rows) const { return (all_rows + rows - 1) / rows; }
  int64_t across(int64_t all_cols) const { return (all_cols + cols - 1) / cols; }
};

// Calls body(block) for all blocks of a [rows, cols] matrix. Blocks that share columns follow one another, so that
// their weights, as a rule larger than the activations, stay in the cache.
template <class T, class Body>
void for_blocks(const Threads& threads, int64_t rows, int64_t cols, const Body& body) {
  const BlockSize size = BlockSize::of<T>(rows, cols);
  const int64_t down = size.down(rows);
  threads.parallel_for(down * size.across(cols), [&](int64_t i) {
    const int64_t row = i % down * size.rows;
    const int64_t col = i / down * size.cols;
    body(Block{row, std::min(size.rows, rows - row), col, std::min(size.cols, cols - col)});
  });
}

}  // namespace tandem::backend
