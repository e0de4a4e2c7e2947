#include "backend/cpu/activation.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem::backend {

namespace {

// A long sum (over the vocabulary) is split: this many terms are added for all blocks before the next ones, so that
// their weights stay in the cache.
constexpr int64_t kMostTerms = 8192;

// Computes dx from the sums dy w, which may share dx's memory unless dx is added to.
template <class T>
struct Finish {
  using A = Wide<T>;

  const op::LinearBackwardInput& op;
  DropoutMask mask{op.dropout};
  // A saved relu output is 0 where dropout dropped it, so the mask need not be computed again.
  const bool relu = op.activation == Activation::relu;
  const bool draw = mask.on() && !relu;

  bool plain() const { return op.activation == Activation::none && !mask.on(); }

  void operator()(const A* sums, int64_t stride, const Block& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t row = block.row + i;
      A* factors = nullptr;
      if (draw) {
        factors = scratch<A, struct LinearBackwardFactors>(block.cols);
        mask.fill(factors, row, block.col, block.cols);
      }
      const T* saved =
          op.activation == Activation::none ? nullptr : op.saved.host<T>() + row * op.saved.stride + block.col;
      finish_row(op.dx.host<T>() + row * op.dx.stride + block.col, sums + i * stride, saved, factors, block.cols);
    }
  }

  void finish_row(T* to, const A* sums, const T* saved, const A* factors, int64_t cols) const {
    const A scale = relu ? static_cast<A>(mask.scale()) : A{1};
    for_vectors<A>(cols, [&](int64_t i, auto part) {
      Vec<A> value = load(sums + i, part);
      if (saved != nullptr) {
        value *= activation_slope<A>(load(saved + i, part), op.activation) * scale;
      }
      if (factors != nullptr) {
        value *= load(factors + i, part);
      }
      store(to + i, op.accumulate ? load(to + i, part) + value : value, part);
    });
  }
};

// The memory of a block's sums: dx itself if its type and the epilogue allow it, else scratch memory. Sums over several
// rounds of terms need separate memory for every block.
template <class T>
class Sums {
 public:
  using A = Wide<T>;

  Sums(const View& dx, bool in_place, bool rounds) : dx_(dx), in_place_(in_place) {
    all_ = !in_place && rounds ? scratch<A, struct LinearBackwardAll>(dx.size()) : nullptr;
  }

  Target<A> of(const Block& block) const {
    if constexpr (std::is_same_v<T, A>) {
      if (in_place_) {
        return {dx_.host<T>() + block.row * dx_.stride + block.col, dx_.stride};
      }
    }
    if (all_ != nullptr) {
      return {all_ + block.row * dx_.cols + block.col, dx_.cols};
    }
    return {scratch<A, struct LinearBackwardBlock>(block.rows * block.cols), block.cols};
  }

 private:
  const View& dx_;
  bool in_place_;
  A* all_;
};

// sums += dx's column sums; one thread adds a column, from the first row to the last.
template <class T, class G>
void add_column_sums(const View& sums, const View& dx, const Threads& threads) {
  using A = Wide<T>;
  for_chunks(threads, dx.cols, 64, [&](int64_t begin, int64_t end) {
    G* total = scratch<G, struct ColumnSums>(end - begin);
    std::fill_n(total, end - begin, G{0});
    for (int64_t row = 0; row < dx.rows; ++row) {
      const T* from = dx.host<T>() + row * dx.stride + begin;
      for_vectors<A>(end - begin, [&](int64_t i, auto part) { add_to<A>(total + i, load(from + i, part), part); });
    }
    for (int64_t i = begin; i < end; ++i) {
      sums.host<G>()[i] += total[i - begin];
    }
  });
}

}  // namespace

void op::LinearBackwardInput::run(CpuBackend& cpu) const {
  dispatch(dx.dtype, [&]<class T>() {
    const Finish<T> finish{*this};
    const ConstView& matrix = w.plain();
    const bool in_place = !std::is_same_v<T, bf16> && (finish.plain() || !accumulate);
    const Sums<T> sums(dx, in_place, dy.cols > kMostTerms);
    for (int64_t term = 0; term < dy.cols; term += kMostTerms) {
      const int64_t terms = std::min(kMostTerms, dy.cols - term);
      for_blocks<T>(cpu.threads(), dx.rows, dx.cols, [&](const Block& block) {
        Target<Wide<T>> target = sums.of(block);
        target.add = term > 0 || (in_place && accumulate);
        multiply(target, Factor<T>{dy.host<T>() + block.row * dy.stride + term, dy.stride},
                 Factor<T>{matrix.host<T>() + term * matrix.stride + block.col, matrix.stride}, block.rows, block.cols,
                 terms);
        if (term + terms == dy.cols && !(in_place && finish.plain())) {
          finish(target.data, target.stride, block);
        }
      });
    }
    if (!column_sums.empty()) {
      if (!accumulate_sums) {
        cpu.fill_zero(column_sums);
      }
      dispatch_sums<T>(column_sums.dtype, [&]<class G>() { add_column_sums<T, G>(column_sums, dx, cpu.threads()); });
    }
  });
}

}  // namespace tandem::backend
