#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem {

namespace {

// dw is cut into blocks of kBlock x kBlock, and the sum over tokens is made in chunks, whose packed parts of dy and x
// stay in the cache. Sizes are measured (bench/gemm.cc).
constexpr int64_t kBlock = 512;
constexpr int64_t kChunk = 512;

// Where there are few blocks, the tokens are cut into 2, 4, 8 segments, whose sums are added in order at the end.
constexpr int64_t kPieces = 8;
constexpr int64_t kLeastSegment = 512;

int64_t segments_for(int64_t blocks, int64_t tokens) {
  int64_t segments = 1;
  while (blocks * segments * 2 <= kPieces && segments * 2 * kLeastSegment <= tokens) {
    segments *= 2;
  }
  return segments;
}

// dbias += the columns' sums over some rows of dy, which are added up aside first.
template <class T>
void add_columns(Wide<T>* dbias, const Factor<T>& dy, int64_t rows, int64_t cols) {
  using A = Wide<T>;
  A* sums = scratch<A, struct BiasSums>(cols);
  std::fill_n(sums, cols, A{0});
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = dy.data + row * dy.stride;
    for_vectors<A>(cols,
                   [&](int64_t i, auto part) { store(sums + i, load(sums + i, part) + load(from + i, part), part); });
  }
  for (int64_t i = 0; i < cols; ++i) {
    dbias[i] += sums[i];
  }
}

// dw block += dy' x over the tokens [begin, end); dbias (may be null) += dy's columns.
template <class T>
void add_tokens(const Target<Wide<T>>& dw, Wide<T>* dbias, const View& dy, const View& x, const Block& block,
                int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; token += kChunk) {
    const int64_t tokens = std::min(kChunk, end - token);
    const Factor<T> a{dy.host<T>() + token * dy.stride + block.row, dy.stride, true};
    const Factor<T> b{x.host<T>() + token * x.stride + block.col, x.stride};
    multiply(dw, a, b, block.rows, block.cols, tokens);
    if (dbias != nullptr) {
      add_columns(dbias, a, tokens, block.rows);
    }
  }
}

// The sums of all segments but the first, which is added to dw and dbias themselves; zero at first.
template <class A>
class Parts {
 public:
  Parts(const Threads& threads, const View& dw, int64_t segments)
      : count_(segments - 1),
        size_((dw.size() + dw.rows + 63) / 64 * 64),
        memory_(scratch<A, struct WeightParts>(count_ * size_)) {
    for_chunks(threads, count_ * size_, 1 << 16,
               [&](int64_t begin, int64_t end) { std::fill(memory_ + begin, memory_ + end, A{0}); });
  }

  A* dw(int64_t segment) const { return memory_ + (segment - 1) * size_; }
  A* dbias(int64_t segment, const View& dw) const { return memory_ + (segment - 1) * size_ + dw.size(); }

  // to += the parts, one after the other, which begin `offset` elements after the segment's beginning.
  void add_to(const View& to, int64_t offset, const Threads& threads) const {
    for_chunks(threads, count_ == 0 ? 0 : to.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        A* sum = to.host<A>() + row * to.stride;
        for (int64_t part = 0; part < count_; ++part) {
          const A* from = memory_ + part * size_ + offset + row * to.cols;
          for (int64_t i = 0; i < to.cols; ++i) {
            sum[i] += from[i];
          }
        }
      }
    });
  }

 private:
  int64_t count_, size_;
  A* memory_;
};

template <class T>
void backward_weight(const Threads& threads, const View& dw, const View& dbias, const View& dy, const View& x) {
  using A = Wide<T>;
  const int64_t down = (dw.rows + kBlock - 1) / kBlock;
  const int64_t blocks = down * ((dw.cols + kBlock - 1) / kBlock);
  const int64_t segments = segments_for(blocks, dy.rows);
  const int64_t segment_rows = (dy.rows / segments + 63) / 64 * 64;
  const Parts<A> parts(threads, dw, segments);
  threads.parallel_for(blocks * segments, [&](int64_t piece) {
    const int64_t segment = piece / blocks;
    const int64_t row = piece % blocks % down * kBlock;
    const int64_t col = piece % blocks / down * kBlock;
    const Block block{row, std::min(kBlock, dw.rows - row), col, std::min(kBlock, dw.cols - col)};
    Target<A> target{dw.host<A>() + row * dw.stride + col, dw.stride, true};
    A* bias = dbias.empty() || col > 0 ? nullptr : dbias.host<A>() + row;
    if (segment > 0) {
      target = {parts.dw(segment) + row * dw.cols + col, dw.cols, true};
      bias = bias == nullptr ? nullptr : parts.dbias(segment, dw) + row;
    }
    const int64_t end = segment == segments - 1 ? dy.rows : (segment + 1) * segment_rows;
    add_tokens<T>(target, bias, dy, x, block, segment * segment_rows, end);
  });
  parts.add_to(dw, 0, threads);
  if (!dbias.empty()) {
    parts.add_to(dbias, dw.size(), threads);
  }
}

}  // namespace

void CpuBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x,
                                        bool accumulate) {
  if (!accumulate) {
    fill_zero(dw);
    fill_zero(dbias);
  }
  dispatch(dy.dtype, [&]<class T>() { backward_weight<T>(threads_, dw, dbias, dy, x); });
}

}  // namespace tandem
