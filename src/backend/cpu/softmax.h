// Softmax over one long row of logits, in an order of additions that depends on nothing but its length.
#pragma once

#include <limits>

#include "backend/cpu/simd.h"

namespace tandem::backend {

template <class A>
struct SoftmaxRow {
  A most;     // the largest logit; NaN is ignored here and shows in the sums
  A sum;      // sum of exp(logit - most)
  A shifted;  // sum of (logit - most)
};

template <class T>
Wide<T> largest(const T* logits, int64_t cols) {
  using A = Wide<T>;
  constexpr int64_t kUnroll = 4 * kLanes<A>;
  const A lowest = -std::numeric_limits<A>::infinity();
  Vec<A> most[4] = {splat(lowest), splat(lowest), splat(lowest), splat(lowest)};
  int64_t i = 0;
  for (; i + kUnroll <= cols; i += kUnroll) {
    for (int j = 0; j < 4; ++j) {
      most[j] = maximum(load(logits + i + j * kLanes<A>), most[j]);
    }
  }
  for_vectors<A>(cols - i, [&](int64_t k, auto part) {
    most[0] = maximum(keep(load(logits + i + k, part), lowest, part), most[0]);
  });
  return max_lanes<A>(maximum(maximum(most[0], most[1]), maximum(most[2], most[3])));
}

// exponentials[i] = exp(logits[i] - most), unless exponentials is null.
template <class T>
SoftmaxRow<Wide<T>> softmax_row(Wide<T>* exponentials, const T* logits, int64_t cols) {
  using A = Wide<T>;
  const A most = largest(logits, cols);
  Vec<A> sum{}, shifted{};
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> distance = load(logits + i, part) - most;
    const Vec<A> exponential = fast_exp(distance);
    sum += keep(exponential, A{0}, part);
    shifted += keep(distance, A{0}, part);
    if (exponentials != nullptr) {
      store(exponentials + i, exponential, part);
    }
  });
  return {most, sum_lanes(sum), sum_lanes(shifted)};
}

}  // namespace tandem::backend
