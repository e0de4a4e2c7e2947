#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/softmax.h"

namespace tandem::backend {

namespace {

// The cached rows that one query attends to.
struct CachedRows {
  const int32_t* index;  // null: the rows are first, first + 1, ...
  int64_t first;
  int64_t count;

  int64_t operator[](int64_t i) const { return index == nullptr ? first + i : index[i]; }
};

template <class T>
Wide<T> dot(const T* a, const T* b, int64_t n) {
  Vec<Wide<T>> sum{};
  for_vectors<Wide<T>>(n, [&](int64_t i, auto part) { sum += load(a + i, part) * load(b + i, part); });
  return sum_lanes(sum);
}

// out = sum of weights[i] * values[rows[i]], times scale; `values` begins at the head's columns.
template <class T>
void weighted_sum(T* out, const Wide<T>* weights, const T* values, int64_t stride, const CachedRows& rows,
                  Wide<T> scale, int64_t width) {
  using A = Wide<T>;
  constexpr int64_t kTile = 4 * kLanes<A>;
  int64_t col = 0;
  for (; col + kTile <= width; col += kTile) {
    Vec<A> sums[4] = {};
    for (int64_t i = 0; i < rows.count; ++i) {
      const T* value = values + rows[i] * stride + col;
      for (int j = 0; j < 4; ++j) {
        sums[j] += load(value + j * kLanes<A>) * weights[i];
      }
    }
    for (int j = 0; j < 4; ++j) {
      store(out + col + j * kLanes<A>, sums[j] * scale);
    }
  }
  for_vectors<A>(width - col, [&](int64_t i, auto part) {
    Vec<A> sum{};
    for (int64_t r = 0; r < rows.count; ++r) {
      sum += load(values + rows[r] * stride + col + i, part) * weights[r];
    }
    store(out + col + i, sum * scale, part);
  });
}

}  // namespace

void op::AttentionCached::run(CpuBackend& cpu) const {
  const int64_t width = q.cols / heads;
  dispatch(out.dtype, [&]<class T>() {
    using A = Wide<T>;
    const A scale = A{1} / std::sqrt(static_cast<A>(width));
    cpu.threads().parallel_for(q.rows, [&](int64_t row) {
      const CachedRows rows{cache.index.empty() ? nullptr : cache.index.host<int32_t>() + row * cache.index.stride,
                            cache.first.empty() ? 0 : cache.first.host<int32_t>()[row],
                            cache.length.host<int32_t>()[row]};
      A* weights = scratch<A, struct CachedWeights>(rows.count);
      for (int64_t begin = 0; begin < q.cols; begin += width) {
        const T* query = q.host<T>() + row * q.stride + begin;
        const T* keys = cache.keys.host<T>() + begin;
        for (int64_t i = 0; i < rows.count; ++i) {
          weights[i] = dot(query, keys + rows[i] * cache.keys.stride, width) * scale;
        }
        const SoftmaxRow<A> softmax = softmax_row(weights, weights, rows.count);
        weighted_sum(out.host<T>() + row * out.stride + begin, weights, cache.values.host<T>() + begin,
                     cache.values.stride, rows, rows.count == 0 ? A{0} : A{1} / softmax.sum, width);
      }
    });
  });
}

}  // namespace tandem::backend
