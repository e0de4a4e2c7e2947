#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/softmax.h"

namespace tandem::backend {

namespace {

template <class A>
struct Candidate {
  A logit;
  int32_t id;
};

// Inserts the candidate into a list of `count` that is sorted best first, behind all that are as good. The list has
// room for one more; the last element of a full list moves there and so falls off.
template <class A>
void insert(Candidate<A>* list, int64_t count, Candidate<A> candidate) {
  int64_t place = count;
  for (; place > 0 && candidate.logit > list[place - 1].logit; --place) {
    list[place] = list[place - 1];
  }
  list[place] = candidate;
}

// Selects the k best of a row; `list` has room for k + 1.
template <class T>
void select(Candidate<Wide<T>>* list, const T* logits, int64_t cols, int64_t k) {
  using A = Wide<T>;
  constexpr int64_t kBlock = 256;  // skipped as a whole if nothing in it is good enough
  for (int64_t i = 0; i < k; ++i) {
    insert(list, i, Candidate<A>{static_cast<A>(logits[i]), static_cast<int32_t>(i)});
  }
  for (int64_t begin = k; begin < cols; begin += kBlock) {
    const int64_t count = std::min(kBlock, cols - begin);
    if (!(largest(logits + begin, count) > list[k - 1].logit)) {
      continue;
    }
    for (int64_t i = begin; i < begin + count; ++i) {
      const A logit = static_cast<A>(logits[i]);
      if (logit > list[k - 1].logit) {
        insert(list, k, Candidate<A>{logit, static_cast<int32_t>(i)});
      }
    }
  }
}

}  // namespace

void op::TopLogProbabilities::run(CpuBackend& cpu) const {
  const int64_t k = ids.cols;
  require(k >= 1 && k <= logits.cols, "the best {} of {} pieces", k, logits.cols);
  dispatch(logits.dtype, [&]<class T>() {
    using A = Wide<T>;
    cpu.threads().parallel_for(logits.rows, [&](int64_t row) {
      const T* from = logits.host<T>() + row * logits.stride;
      const SoftmaxRow<A> softmax = softmax_row<T>(nullptr, from, logits.cols);
      const A log_sum = std::log(softmax.sum);
      Candidate<A>* list = scratch<Candidate<A>, struct TopList>(k + 1);
      select(list, from, logits.cols, k);
      for (int64_t i = 0; i < k; ++i) {
        values.host<float>()[row * values.stride + i] = static_cast<float>(list[i].logit - softmax.most - log_sum);
        ids.host<int32_t>()[row * ids.stride + i] = list[i].id;
      }
    });
  });
}

}  // namespace tandem::backend
