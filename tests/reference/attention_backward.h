#pragma once

#include "reference/attention.h"

namespace tandem::reference {

// With p = softmax(s), m the dropout mask and out = (p m) v:
//   dv = (p m)' dout,   dp = (dout v') m,   ds = p (dp - sum over keys of p dp),   dq = ds k,   dk = ds' q
// The softmax is made again: neither out nor log_sums is read.
inline void compute(const op::AttentionBackward& op) {
  const Values q(op.q), k(op.k), v(op.v), dout(op.dout);
  const int64_t width = q.cols / op.shape.heads;
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  Values dq(q.rows, q.cols), dk(k.rows, k.cols), dv(k.rows, k.cols);
  for_queries(
      op.shape,
      [&](int head, int64_t begin, int64_t query, int64_t key, int64_t seen) {
        std::vector<double> p = scores_of(q.row(query) + begin, k, key, seen, begin, width), dp(p.size()), m(p.size());
        softmax(p);
        double sum = 0;
        for (size_t i = 0; i < p.size(); ++i) {
          const int64_t row = key + static_cast<int64_t>(i);
          m[i] = mask(op.shape.dropout, query, static_cast<int64_t>(i), head);
          dp[i] = dot(dout.row(query) + begin, v.row(row) + begin, width) * m[i];
          sum += p[i] * dp[i];
        }
        for (size_t i = 0; i < p.size(); ++i) {
          const int64_t row = key + static_cast<int64_t>(i);
          const double ds = p[i] * (dp[i] - sum) * scale;
          for (int64_t c = begin; c < begin + width; ++c) {
            dv(row, c) += p[i] * m[i] * dout(query, c);
            dq(query, c) += ds * k(row, c);
            dk(row, c) += ds * q(query, c);
          }
        }
      },
      width);
  write(op.dq, dq);
  write(op.dk, dk);
  write(op.dv, dv);
}

}  // namespace tandem::reference
