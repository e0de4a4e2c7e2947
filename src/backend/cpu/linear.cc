#include "backend/cpu/activation.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem::backend {

namespace {

// Computes y and pre from the sums x w', which may share y's memory.
template <class T>
struct Finish {
  using A = Wide<T>;

  const op::Linear& op;
  DropoutMask mask{op.dropout};

  bool needed() const {
    return std::is_same_v<T, bf16> || !op.bias.empty() || !op.pre.empty() || op.activation != Activation::none ||
           mask.on();
  }

  void operator()(const A* sums, int64_t stride, const Block& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t row = block.row + i;
      A* factors = nullptr;
      if (mask.on()) {
        factors = scratch<A, struct LinearFactors>(block.cols);
        mask.fill(factors, row, block.col, block.cols);
      }
      const T* bias = op.bias.empty() ? nullptr : op.bias.host<T>() + block.col;
      T* pre = op.pre.empty() ? nullptr : op.pre.host<T>() + row * op.pre.stride + block.col;
      finish_row(op.y.host<T>() + row * op.y.stride + block.col, pre, sums + i * stride, bias, factors, block.cols);
    }
  }

  void finish_row(T* to, T* pre, const A* sums, const T* bias, const A* factors, int64_t cols) const {
    for_vectors<A>(cols, [&](int64_t i, auto part) {
      Vec<A> value = load(sums + i, part);
      if (bias != nullptr) {
        value += load(bias + i, part);
      }
      if (pre != nullptr) {
        store(pre + i, value, part);
      }
      value = activate<A>(value, op.activation);
      store(to + i, factors == nullptr ? value : value * load(factors + i, part), part);
    });
  }
};

template <class T>
void linear_block(const Block& block, const op::Linear& op, const Finish<T>& finish) {
  using A = Wide<T>;
  const ConstView& w = op.w.plain();
  Target<A> sums;
  if constexpr (std::is_same_v<T, A>) {
    sums = {op.y.host<T>() + block.row * op.y.stride + block.col, op.y.stride};
  } else {
    sums = {scratch<A, struct LinearSums>(block.rows * block.cols), block.cols};
  }
  multiply(sums, Factor<T>{op.x.host<T>() + block.row * op.x.stride, op.x.stride},
           Factor<T>{w.host<T>() + block.col * w.stride, w.stride, true}, block.rows, block.cols, op.x.cols);
  if (finish.needed()) {
    finish(sums.data, sums.stride, block);
  }
}

}  // namespace

void op::Linear::run(CpuBackend& cpu) const {
  dispatch(y.dtype, [&]<class T>() {
    const Finish<T> finish{*this};
    for_blocks<T>(cpu.threads(), y.rows, y.cols, [&](const Block& block) { linear_block<T>(block, *this, finish); });
  });
}

}  // namespace tandem::backend
