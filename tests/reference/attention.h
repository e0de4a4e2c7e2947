#pragma once

#include <algorithm>

#include "reference/values.h"

namespace tandem::reference {

inline void compute(const op::PlanAttention&) {}  // the numbers are the device's own

// Calls body(head, first column of the head, query, first key, number of keys that the query sees) for all queries.
template <class Body>
void for_queries(const backend::AttentionShape& shape, const Body& body, int64_t width) {
  const int32_t *queries = shape.query_starts.host<int32_t>(), *keys = shape.key_starts.host<int32_t>();
  for (int64_t sentence = 0; sentence + 1 < shape.query_starts.cols; ++sentence) {
    for (int head = 0; head < shape.heads; ++head) {
      for (int64_t query = queries[sentence]; query < queries[sentence + 1]; ++query) {
        const int64_t all = keys[sentence + 1] - keys[sentence], up_to_its_own = query - queries[sentence] + 1;
        body(head, head * width, query, keys[sentence], shape.causal ? std::min(all, up_to_its_own) : all);
      }
    }
  }
}

// Replaces scores by softmax(scores) and returns the log of the denominator; 0 where there are none.
inline double softmax(std::vector<double>& scores) {
  const double most = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - most);
    sum += score;
  }
  for (double& score : scores) {
    score /= sum;
  }
  return scores.empty() ? 0 : most + std::log(sum);
}

// q k' / sqrt(width) of one query
inline std::vector<double> scores_of(const double* q, const Values& k, int64_t key, int64_t seen, int64_t begin,
                                     int64_t width) {
  std::vector<double> scores;
  for (int64_t i = 0; i < seen; ++i) {
    scores.push_back(dot(q, k.row(key + i) + begin, width) / std::sqrt(static_cast<double>(width)));
  }
  return scores;
}

// out = dropout(softmax(q k' / sqrt(d / heads))) v. Rows past the last sentence are zeros.
inline void compute(const op::Attention& op) {
  const Values q(op.q), k(op.k), v(op.v);
  const int64_t width = q.cols / op.shape.heads;
  Values out(q.rows, q.cols), log_sums(op.shape.heads, q.rows);
  for_queries(
      op.shape,
      [&](int head, int64_t begin, int64_t query, int64_t key, int64_t seen) {
        std::vector<double> weights = scores_of(q.row(query) + begin, k, key, seen, begin, width);
        log_sums(head, query) = softmax(weights);
        for (int64_t i = 0; i < seen; ++i) {
          const double weight = weights[static_cast<size_t>(i)] * mask(op.shape.dropout, query, i, head);
          for (int64_t c = begin; c < begin + width; ++c) {
            out(query, c) += weight * v(key + i, c);
          }
        }
      },
      width);
  write(op.out, out);
  write(op.log_sums, log_sums);
}

}  // namespace tandem::reference
