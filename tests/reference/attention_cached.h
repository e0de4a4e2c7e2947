#pragma once

#include "reference/attention.h"

namespace tandem::reference {

// Each row attends to the cached rows that are its own; zeros where there are none.
inline void compute(const op::AttentionCached& op) {
  const Values q(op.q), keys(op.cache.keys), values(op.cache.values);
  const Values first(op.cache.first), index(op.cache.index), length(op.cache.length);
  const int64_t width = q.cols / op.heads;
  Values out(q.rows, q.cols);
  for (int64_t r = 0; r < q.rows; ++r) {
    const auto cached = [&](int64_t i) {
      return static_cast<int64_t>(index.empty() ? first(0, r) + static_cast<double>(i) : index(r, i));
    };
    for (int64_t begin = 0; begin < q.cols; begin += width) {
      std::vector<double> weights;
      for (int64_t i = 0; i < static_cast<int64_t>(length(0, r)); ++i) {
        weights.push_back(dot(q.row(r) + begin, keys.row(cached(i)) + begin, width) /
                          std::sqrt(static_cast<double>(width)));
      }
      softmax(weights);
      for (size_t i = 0; i < weights.size(); ++i) {
        for (int64_t c = begin; c < begin + width; ++c) {
          out(r, c) += weights[i] * values(cached(static_cast<int64_t>(i)), c);
        }
      }
    }
  }
  write(op.out, out);
}

}  // namespace tandem::reference
