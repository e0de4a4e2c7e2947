#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

constexpr int64_t kRowsPerPiece = 16;

// A row's dropout factors, or null if dropout is off.
template <class A>
const A* row_factors(const DropoutMask& mask, int64_t row, int64_t cols) {
  if (!mask.on()) {
    return nullptr;
  }
  A* factors = scratch<A, struct EmbedFactors>(cols);
  mask.fill(factors, row, 0, cols);
  return factors;
}

template <class T>
void embed_row(T* x, const T* table, const Wide<T>* positions, Wide<T> scale, const Wide<T>* factors, int64_t cols) {
  using A = Wide<T>;
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> value = load(table + i, part) * scale + load(positions + i, part);
    store(x + i, factors == nullptr ? value : value * load(factors + i, part), part);
  });
}

template <class T, class G>
void add_row(G* sum, const T* dx, Wide<T> scale, const Wide<T>* factors, int64_t cols) {
  using A = Wide<T>;
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    const Vec<A> value = load(dx + i, part) * scale;
    add_to<A>(sum + i, factors == nullptr ? value : value * load(factors + i, part), part);
  });
}

}  // namespace

void op::Embed::run(CpuBackend& cpu) const {
  const DropoutMask mask(dropout);
  const int32_t* token = tokens.host<int32_t>();
  const int32_t* place = position.host<int32_t>();
  dispatch(x.dtype, [&]<class T>() {
    using A = Wide<T>;
    const ConstView& matrix = table.plain();
    for_chunks(cpu.threads(), x.rows, kRowsPerPiece, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        embed_row(x.host<T>() + row * x.stride, matrix.host<T>() + token[row] * matrix.stride,
                  positions.host<A>() + place[row] * positions.stride, static_cast<A>(scale),
                  row_factors<A>(mask, row, x.cols), x.cols);
      }
    });
  });
}

void op::EmbedBackward::run(CpuBackend& cpu) const {
  const DropoutMask mask(dropout);
  const int32_t* rows = order.rows.host<int32_t>();
  const int32_t* ids = order.ids.host<int32_t>();
  const int32_t* starts = order.starts.host<int32_t>();
  const int64_t cols = dx.cols;
  dispatch(dx.dtype, [&]<class T>() {
    using A = Wide<T>;
    dispatch_sums<T>(dtable.dtype, [&]<class G>() {
      cpu.threads().parallel_for(order.ids.cols, [&](int64_t run) {
        G* sum = scratch<G, struct EmbedSum>(cols);
        std::fill_n(sum, cols, G{0});
        for (int32_t i = starts[run]; i < starts[run + 1]; ++i) {
          add_row<T, G>(sum, dx.host<T>() + rows[i] * dx.stride, static_cast<A>(scale),
                        row_factors<A>(mask, rows[i], cols), cols);
        }
        G* to = dtable.host<G>() + ids[run] * dtable.stride;
        for_vectors<G>(cols, [&](int64_t i, auto part) { add_to<G>(to + i, load(sum + i, part), part); });
      });
    });
  });
}

}  // namespace tandem::backend
