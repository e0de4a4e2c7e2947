#include "backend/cpu/activation.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem {

namespace {

// y and pre from the sums x w', which may lie where y lies.
template <class T>
struct Finish {
  using A = Wide<T>;

  const View& y;
  const Epilogue& epilogue;
  DropoutMask mask{epilogue.dropout};

  bool needed() const {
    return std::is_same_v<T, bf16> || !epilogue.bias.empty() || !epilogue.pre.empty() ||
           epilogue.activation != Activation::none || mask.on();
  }

  void operator()(const A* sums, int64_t stride, const Block& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t row = block.row + i;
      A* factors = nullptr;
      if (mask.on()) {
        factors = scratch<A, struct LinearFactors>(block.cols);
        mask.fill(factors, row, block.col, block.cols);
      }
      const T* bias = epilogue.bias.empty() ? nullptr : epilogue.bias.host<T>() + block.col;
      T* pre = epilogue.pre.empty() ? nullptr : epilogue.pre.host<T>() + row * epilogue.pre.stride + block.col;
      finish_row(y.host<T>() + row * y.stride + block.col, pre, sums + i * stride, bias, factors, block.cols);
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
      value = activate<A>(value, epilogue.activation);
      store(to + i, factors == nullptr ? value : value * load(factors + i, part), part);
    });
  }
};

template <class T>
void linear_block(const Block& block, const View& y, const View& x, const View& w, const Finish<T>& finish) {
  using A = Wide<T>;
  Target<A> sums;
  if constexpr (std::is_same_v<T, A>) {
    sums = {y.host<T>() + block.row * y.stride + block.col, y.stride};
  } else {
    sums = {scratch<A, struct LinearSums>(block.rows * block.cols), block.cols};
  }
  multiply(sums, Factor<T>{x.host<T>() + block.row * x.stride, x.stride},
           Factor<T>{w.host<T>() + block.col * w.stride, w.stride, true}, block.rows, block.cols, x.cols);
  if (finish.needed()) {
    finish(sums.data, sums.stride, block);
  }
}

}  // namespace

void CpuBackend::linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) {
  dispatch(y.dtype, [&]<class T>() {
    const Finish<T> finish{y, epilogue};
    for_blocks<T>(threads_, y.rows, y.cols, [&](const Block& block) { linear_block<T>(block, y, x, w, finish); });
  });
}

}  // namespace tandem
