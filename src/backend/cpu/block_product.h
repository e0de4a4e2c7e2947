// Products of the small matrices of one sentence and one head, with the sums in registers.
//
// c [m, n] = a [m, k] b [k, n]. b and c are rows of a multiple of kBlockColumns elements (padded), a may be transposed:
// its element (i, l) is a[i * a_row + l * a_col].
#pragma once

#include <algorithm>

#include "backend/cpu/simd.h"

namespace tandem::backend {

constexpr int64_t kBlockRows = 6;      // with two vectors per row, the sums fill 12 of the 16 registers
constexpr int64_t kBlockColumns = 16;  // a multiple of two vectors of either type

constexpr int64_t padded(int64_t n) { return (n + kBlockColumns - 1) / kBlockColumns * kBlockColumns; }

template <class A>
struct Strided {
  const A* data;
  int64_t row;  // elements from one row to the next
  int64_t col;  // elements from one column to the next
};

template <int kRows, class A>
inline void multiply_tile(A* c, int64_t c_stride, Strided<A> a, const A* b, int64_t b_stride, int64_t k) {
  Vec<A> sums[kRows][2] = {};
  for (int64_t l = 0; l < k; ++l) {
    const Vec<A> left = load(b + l * b_stride);
    const Vec<A> right = load(b + l * b_stride + kLanes<A>);
    const A* column = a.data + l * a.col;
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const Vec<A> factor = splat(column[i * a.row]);
      sums[i][0] += factor * left;
      sums[i][1] += factor * right;
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    store(c + i * c_stride, sums[i][0]);
    store(c + i * c_stride + kLanes<A>, sums[i][1]);
  }
}

// At most kBlockRows rows of c, n columns rounded up to whole tiles.
template <class A>
void multiply_block(A* c, int64_t c_stride, Strided<A> a, const A* b, int64_t b_stride, int64_t rows, int64_t n,
                    int64_t k) {
  for (int64_t j = 0; j < n; j += 2 * kLanes<A>) {
    switch (rows) {
      case 1:
        multiply_tile<1>(c + j, c_stride, a, b + j, b_stride, k);
        break;
      case 2:
        multiply_tile<2>(c + j, c_stride, a, b + j, b_stride, k);
        break;
      case 3:
        multiply_tile<3>(c + j, c_stride, a, b + j, b_stride, k);
        break;
      case 4:
        multiply_tile<4>(c + j, c_stride, a, b + j, b_stride, k);
        break;
      case 5:
        multiply_tile<5>(c + j, c_stride, a, b + j, b_stride, k);
        break;
      default:
        multiply_tile<6>(c + j, c_stride, a, b + j, b_stride, k);
        break;
    }
  }
}

}  // namespace tandem::backend
