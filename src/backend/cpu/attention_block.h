// One sentence and one head of attention: where it lies, and its matrices copied to contiguous memory in the type
// that arithmetic is done in.
#pragma once

#include "backend/cpu/block_product.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/rows.h"

namespace tandem::backend {

struct AttentionBlock {
  int64_t head, width;           // columns [head * width, (head + 1) * width)
  int64_t first_query, queries;  // rows
  int64_t first_key, keys;       // rows
  bool causal;

  // The number of keys that the queries up to `query` see.
  int64_t visible(int64_t query) const { return causal ? std::min(keys, query + 1) : keys; }
};

// Calls body(block) for every sentence and head.
template <class Body>
void for_attention_blocks(const Threads& threads, const AttentionShape& shape, int64_t cols, const Body& body) {
  const int32_t* query = shape.query_starts.host<int32_t>();
  const int32_t* key = shape.key_starts.host<int32_t>();
  const int64_t sentences = shape.query_starts.cols - 1;
  threads.parallel_for(sentences * shape.heads, [&](int64_t piece) {
    const int64_t s = piece / shape.heads;
    body(AttentionBlock{piece % shape.heads, cols / shape.heads, query[s], query[s + 1] - query[s], key[s],
                        key[s + 1] - key[s], shape.causal});
  });
}

// Zeroes the rows that belong to no sentence.
inline void clear_past(Backend& backend, const View& view, const ConstView& starts) {
  const int64_t end = starts.host<int32_t>()[starts.cols - 1];
  backend.fill_zero(view.slice_rows(end, view.rows - end));
}

// Copies the head's columns of `rows` rows from `first`, times scale, to [rows, padded(width)]; the padding is zero.
template <class T>
void gather(Wide<T>* to, const ConstView& from, int64_t first, int64_t rows, const AttentionBlock& block,
            Wide<T> scale = 1) {
  using A = Wide<T>;
  const int64_t stride = padded(block.width);
  const T* begin = from.host<T>() + first * from.stride + block.head * block.width;
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = begin + row * from.stride;
    A* target = to + row * stride;
    for_vectors<A>(block.width, [&](int64_t i, auto part) { store(target + i, load(source + i, part) * scale, part); });
    std::fill(target + block.width, target + stride, A{0});
  }
}

// The same, transposed to [width, padded(rows)]; the padding is zero.
template <class T>
void gather_transposed(Wide<T>* to, const ConstView& from, int64_t first, int64_t rows, const AttentionBlock& block) {
  const int64_t stride = padded(rows);
  const T* source = from.host<T>() + first * from.stride + block.head * block.width;
  for (int64_t col = 0; col < block.width; ++col) {
    Wide<T>* target = to + col * stride;
    for (int64_t row = 0; row < rows; ++row) {
      target[row] = static_cast<Wide<T>>(source[row * from.stride + col]);
    }
    std::fill(target + rows, target + stride, Wide<T>{0});
  }
}

// Copies rows of padded(width) elements, times scale, back to the head's columns of a matrix.
template <class T>
void scatter(const View& to, int64_t first, const Wide<T>* from, int64_t rows, const AttentionBlock& block,
             Wide<T> scale = 1) {
  using A = Wide<T>;
  T* begin = to.host<T>() + first * to.stride + block.head * block.width;
  for (int64_t row = 0; row < rows; ++row) {
    T* target = begin + row * to.stride;
    const A* source = from + row * padded(block.width);
    for_vectors<A>(block.width, [&](int64_t i, auto part) { store(target + i, load(source + i, part) * scale, part); });
  }
}

}  // namespace tandem::backend
