#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

constexpr int64_t kRowsPerPiece = 16;

template <class A>
struct Statistics {
  A mean;
  A rstd;
};

// x[i] = residual[i] + branch[i] * factors[i], rounded to T, so that the backward pass normalises the same numbers.
// Returns the sum of x.
template <class T>
Wide<T> add_branch(Wide<T>* x, const T* residual, const T* branch, const Wide<T>* factors, int64_t cols) {
  using A = Wide<T>;
  Vec<A> total{};
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    Vec<A> value = load(residual + i, part);
    if (branch != nullptr) {
      const Vec<A> added = load(branch + i, part);
      value = round_to<T>(factors == nullptr ? value + added : value + added * load(factors + i, part));
    }
    total += value;
    store(x + i, value, part);
  });
  return sum_lanes(total);
}

template <class A>
Statistics<A> statistics_of(const A* x, A sum, int64_t cols) {
  const A mean = sum / static_cast<A>(cols);
  Vec<A> squares{};
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> distance = keep(load(x + i, part) - mean, A{0}, part);
    squares += distance * distance;
  });
  const A variance = sum_lanes(squares) / static_cast<A>(cols);
  return {mean, A{1} / std::sqrt(variance + static_cast<A>(kNormEpsilon))};
}

}  // namespace

void op::ResidualNorm::run(CpuBackend& cpu) const {
  const DropoutMask mask(dropout);
  const int64_t cols = normed.cols;
  dispatch(normed.dtype, [&]<class T>() {
    using A = Wide<T>;
    const A* scale = gamma.host<A>();
    const A* shift = beta.host<A>();
    for_chunks(cpu.threads(), normed.rows, kRowsPerPiece, [&](int64_t begin, int64_t end) {
      A* x = scratch<A, struct NormRow>(2 * cols);
      A* factors = mask.on() && !branch.empty() ? x + cols : nullptr;
      for (int64_t row = begin; row < end; ++row) {
        if (factors != nullptr) {
          mask.fill(factors, row, 0, cols);
        }
        const T* added = branch.empty() ? nullptr : branch.host<T>() + row * branch.stride;
        const A total = add_branch(x, residual.host<T>() + row * residual.stride, added, factors, cols);
        const Statistics<A> found = statistics_of(x, total, cols);
        statistics.host<A>()[row * statistics.stride] = found.mean;
        statistics.host<A>()[row * statistics.stride + 1] = found.rstd;
        T* kept = sum.empty() ? nullptr : sum.host<T>() + row * sum.stride;
        T* out = normed.host<T>() + row * normed.stride;
        for_vectors<A>(cols, [&](int64_t i, auto part) {
          const Vec<A> value = load(x + i, part);
          if (kept != nullptr) {
            store(kept + i, value, part);
          }
          const Vec<A> standard = (value - found.mean) * found.rstd;
          store(out + i, standard * load(scale + i, part) + load(shift + i, part), part);
        });
      }
    });
  });
}

}  // namespace tandem::backend
