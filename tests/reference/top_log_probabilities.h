#pragma once

#include <algorithm>
#include <numeric>

#include "reference/attention.h"

namespace tandem::reference {

// The k largest logits of each row, ties to the lower id, minus the log of the sum of all exponentials.
inline void compute(const op::TopLogProbabilities& op) {
  const Values logits(op.logits);
  Values values(op.values.rows, op.values.cols), ids = values;
  for (int64_t r = 0; r < logits.rows; ++r) {
    const double* row = logits.row(r);
    std::vector<double> all(row, row + logits.cols);
    const double log_sum = softmax(all);
    std::vector<int32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [row](int32_t a, int32_t b) { return row[a] > row[b]; });
    for (int64_t i = 0; i < ids.cols; ++i) {
      ids(r, i) = order[static_cast<size_t>(i)];
      values(r, i) = row[order[static_cast<size_t>(i)]] - log_sum;
    }
  }
  write(op.values, values);
  write(op.ids, ids);
}

}  // namespace tandem::reference
