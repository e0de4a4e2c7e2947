#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

// Rows whose shares of the parameter gradients are added up together; the chunks' sums are then added in order.
constexpr int64_t kRowsPerChunk = 64;

template <class T>
struct Row {
  T* dresidual;
  T* dbranch;  // may be null
  const T* dnormed;
  const T* dsum;  // may be null
  const T* sum;
  const Wide<T>* gamma;
  const Wide<T>* factors;  // may be null
  Wide<T> mean;
  Wide<T> rstd;
};

// With x = (sum - mean) * rstd and g = dnormed * gamma: d = rstd * (g - mean(g) - x * mean(g x)) + dsum.
// Adds the row's share to dgamma, dbeta and dbias, which may be null.
template <class T, class G>
void backward_row(const Row<T>& row, G* dgamma, G* dbeta, G* dbias, int64_t cols) {
  using A = Wide<T>;
  Vec<A> sum_g{}, sum_gx{};
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> x = (load(row.sum + i, part) - row.mean) * row.rstd;
    const Vec<A> dy = load(row.dnormed + i, part);
    add_to<A>(dgamma + i, dy * x, part);
    add_to<A>(dbeta + i, dy, part);
    const Vec<A> g = dy * load(row.gamma + i, part);
    sum_g += g;
    sum_gx += g * x;
  });
  const A mean_g = sum_lanes(sum_g) / static_cast<A>(cols);
  const A mean_gx = sum_lanes(sum_gx) / static_cast<A>(cols);
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> x = (load(row.sum + i, part) - row.mean) * row.rstd;
    const Vec<A> g = load(row.dnormed + i, part) * load(row.gamma + i, part);
    Vec<A> d = (g - mean_g - x * mean_gx) * row.rstd;
    if (row.dsum != nullptr) {
      d += load(row.dsum + i, part);
    }
    store(row.dresidual + i, d, part);
    if (row.dbranch != nullptr) {
      d = row.factors == nullptr ? d : d * load(row.factors + i, part);
      store(row.dbranch + i, d, part);
    }
    if (dbias != nullptr) {
      add_to<A>(dbias + i, d, part);
    }
  });
}

}  // namespace

void op::ResidualNormBackward::run(CpuBackend& cpu) const {
  const DropoutMask mask(dropout);
  const int64_t rows = dnormed.rows;
  const int64_t cols = dnormed.cols;
  const int64_t chunks = (rows + kRowsPerChunk - 1) / kRowsPerChunk;
  const bool bias = !dbias.empty();
  const int64_t share_size = (bias ? 3 : 2) * cols;
  const auto backward = [&]<class T, class G>() {
    using A = Wide<T>;
    const auto row_of = [](const auto& view, int64_t row) {
      return view.empty() ? nullptr : view.template host<T>() + row * view.stride;
    };
    G* partial = scratch<G, struct NormPartial>(chunks * share_size);  // [chunks, dgamma, dbeta and dbias, cols]
    for_chunks(cpu.threads(), rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
      G* share = partial + begin / kRowsPerChunk * share_size;
      std::fill_n(share, share_size, G{0});
      A* factors = mask.on() && !dbranch.empty() ? scratch<A, struct NormFactors>(cols) : nullptr;
      for (int64_t row = begin; row < end; ++row) {
        if (factors != nullptr) {
          mask.fill(factors, row, 0, cols);
        }
        const A* found = statistics.host<A>() + row * statistics.stride;
        backward_row<T, G>({row_of(dresidual, row), row_of(dbranch, row), row_of(dnormed, row), row_of(dsum, row),
                            row_of(sum, row), gamma.host<A>(), factors, found[0], found[1]},
                           share, share + cols, bias ? share + 2 * cols : nullptr, cols);
      }
    });
    const auto add_up = [&](const View& to, const G* first) {
      if (!accumulate) {
        cpu.fill_zero(to);
      }
      for_chunks(cpu.threads(), cols, 64, [&](int64_t begin, int64_t end) {
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          const G* share = first + chunk * share_size;
          for (int64_t i = begin; i < end; ++i) {
            to.host<G>()[i] += share[i];
          }
        }
      });
    };
    add_up(dgamma, partial);
    add_up(dbeta, partial + cols);
    if (bias) {
      add_up(dbias, partial + 2 * cols);
    }
  };
  dispatch(dnormed.dtype, [&]<class T>() {
    dispatch_sums<T>(dgamma.dtype, [&]<class G>() { backward.template operator()<T, G>(); });
  });
}

}  // namespace tandem::backend
