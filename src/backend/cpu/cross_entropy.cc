#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/softmax.h"

namespace tandem::backend {

namespace {

struct RowLoss {
  double smoothed = 0;
  double nll = 0;
  bool correct = false;
};

// Whether the label is the first of the largest logits.
template <class T>
bool is_best(const T* logits, int64_t label, Wide<T> most) {
  if (static_cast<Wide<T>>(logits[label]) != most) {
    return false;
  }
  return std::none_of(logits, logits + label, [most](T value) { return static_cast<Wide<T>>(value) == most; });
}

// Loss of one row whose label is known; q is 1 - smoothing on the label and `other` on every other piece.
template <class T>
RowLoss loss_of(const T* logits, int64_t label, const SoftmaxRow<Wide<T>>& row, double smoothing, double other) {
  const double log_sum = std::log(static_cast<double>(row.sum));
  const double at_label = static_cast<double>(static_cast<Wide<T>>(logits[label]) - row.most);
  const double elsewhere = static_cast<double>(row.shifted) - at_label;
  RowLoss loss;
  loss.nll = log_sum - at_label;
  loss.smoothed = smoothing > 0 ? log_sum - (1 - smoothing) * at_label - other * elsewhere : loss.nll;
  loss.correct = is_best(logits, label, row.most);
  return loss;
}

// logits[i] = scale * (p[i] - q[i]) with p[i] = exponentials[i] / sum.
template <class T>
void write_gradient(T* logits, const Wide<T>* exponentials, int64_t cols, int64_t label, Wide<T> sum, Wide<T> scale,
                    Wide<T> on_label, Wide<T> other) {
  using A = Wide<T>;
  const A factor = scale / sum;
  const A offset = scale * other;
  for_vectors<A>(
      cols, [&](int64_t i, auto part) { store(logits + i, load(exponentials + i, part) * factor - offset, part); });
  logits[label] = static_cast<T>(exponentials[label] * factor - scale * on_label);
}

}  // namespace

void op::CrossEntropy::run(CpuBackend& cpu) const {
  const int64_t cols = logits.cols;
  const int32_t* label = labels.host<int32_t>();
  const double eps = cols > 1 ? static_cast<double>(smoothing) : 0.0;  // a single piece leaves nothing to spread it on
  const double other = cols > 1 ? eps / static_cast<double>(cols - 1) : 0.0;
  RowLoss* losses = scratch<RowLoss, struct CrossEntropyLosses>(logits.rows);
  dispatch(logits.dtype, [&]<class T>() {
    using A = Wide<T>;
    cpu.threads().parallel_for(logits.rows, [&](int64_t r) {
      T* row = logits.host<T>() + r * logits.stride;
      if (label[r] < 0) {
        if (state != nullptr) {
          std::fill_n(row, cols, T{});
        }
        return;
      }
      A* exponentials = scratch<A, struct CrossEntropyRow>(cols);
      const SoftmaxRow<A> found = softmax_row(exponentials, row, cols);
      losses[r] = loss_of(row, label[r], found, eps, other);
      if (state != nullptr) {
        write_gradient(row, exponentials, cols, label[r], found.sum, static_cast<A>(state->loss_scale),
                       static_cast<A>(1 - eps), static_cast<A>(other));
      }
    });
  });
  for (int64_t r = 0; r < logits.rows; ++r) {
    if (label[r] >= 0) {
      totals->smoothed += losses[r].smoothed;
      totals->nll += losses[r].nll;
      totals->correct += losses[r].correct ? 1 : 0;
      totals->tokens += 1;
    }
  }
}

}  // namespace tandem::backend
