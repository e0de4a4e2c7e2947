#pragma once

#include <algorithm>

#include "reference/values.h"

namespace tandem::reference {

// loss = - sum of target[v] log p[v], p = softmax(logits), and its gradient (p - target) * loss_scale. The target is
// 1 - smoothing on the label and smoothing / (V - 1) elsewhere; one piece alone has nothing to spread it on.
inline void compute(const op::CrossEntropy& op) {
  Values logits(op.logits);
  const double smoothing = logits.cols > 1 ? static_cast<double>(op.smoothing) : 0;
  const double elsewhere = logits.cols > 1 ? smoothing / static_cast<double>(logits.cols - 1) : 0;
  for (int64_t r = 0; r < logits.rows; ++r) {
    double* row = logits.row(r);
    const int32_t label = op.labels.host<int32_t>()[r];
    const double* most = std::max_element(row, row + logits.cols);  // the first of the largest
    if (label >= 0) {
      op.totals->correct += most == row + label ? 1 : 0;
      op.totals->tokens += 1;
    }
    double sum = 0;
    for (int64_t v = 0; v < logits.cols; ++v) {
      sum += std::exp(row[v] - *most);
    }
    const double log_sum = *most + std::log(sum);
    for (int64_t v = 0; v < logits.cols; ++v) {
      const double log_p = row[v] - log_sum, target = v == label ? 1 - smoothing : elsewhere;
      op.totals->nll -= v == label ? log_p : 0;
      op.totals->smoothed -= label >= 0 ? target * log_p : 0;
      if (op.state != nullptr) {
        row[v] = label >= 0 ? (std::exp(log_p) - target) * static_cast<double>(op.state->loss_scale) : 0;
      }
    }
  }
  write(op.logits, logits);
}

}  // namespace tandem::reference
