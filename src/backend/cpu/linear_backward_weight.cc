#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem {

namespace {

// dw is cut into blocks of kBlock x kBlock; the sum over tokens is made in chunks, whose parts of dy and x are copied
// side by side first: their rows lie a power of two apart as a rule, which caches bear badly. Sizes are measured
// (bench/gemm.cc).
constexpr int64_t kBlock = 512;
constexpr int64_t kChunk = 256;
constexpr int64_t kChunkStep = 64;  // a last chunk is filled up to a multiple of this with zeros: few distinct shapes
constexpr int64_t kGap = 32;        // elements between copied rows, against powers of two

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

// Rows [begin, end) of some columns, and rows of zeros up to `rows`.
template <class T>
Factor<T> copy_chunk(T* to, const View& from, int64_t begin, int64_t end, int64_t rows, int64_t col, int64_t cols) {
  const int64_t stride = (cols + kGap - 1) / kGap * kGap + kGap;
  for (int64_t row = begin; row < end; ++row) {
    std::copy_n(from.host<T>() + row * from.stride + col, cols, to + (row - begin) * stride);
  }
  for (int64_t row = end - begin; row < rows; ++row) {
    std::fill_n(to + row * stride, cols, T());
  }
  return {to, stride};
}

// sums[c] += the column's sum over the chunk.
template <class T>
void add_columns(Wide<T>* sums, const Factor<T>& chunk, int64_t rows, int64_t cols) {
  using A = Wide<T>;
  for_vectors<A>(cols, [&](int64_t i, auto part) {
    Vec<A> sum = splat(A{0});
    for (int64_t row = 0; row < rows; ++row) {
      sum += load(chunk.data + row * chunk.stride + i, part);
    }
    store(sums + i, load(sums + i, part) + sum, part);
  });
}

// dw block += dy' x over the tokens [begin, end); dbias (may be null) += dy's columns.
template <class T>
void add_tokens(const Target<Wide<T>>& dw, Wide<T>* dbias, const View& dy, const View& x, const Block& block,
                int64_t begin, int64_t end) {
  T* dy_copy = scratch<T, struct WeightDy>(kChunk * (kBlock + 2 * kGap));
  T* x_copy = scratch<T, struct WeightX>(kChunk * (kBlock + 2 * kGap));
  for (int64_t token = begin; token < end; token += kChunk) {
    const int64_t last = std::min(end, token + kChunk);
    const int64_t terms = (last - token + kChunkStep - 1) / kChunkStep * kChunkStep;
    Factor<T> a = copy_chunk(dy_copy, dy, token, last, terms, block.row, block.rows);
    const Factor<T> b = copy_chunk(x_copy, x, token, last, terms, block.col, block.cols);
    if (dbias != nullptr) {
      add_columns(dbias, a, last - token, block.rows);
    }
    a.transposed = true;
    multiply(dw, a, b, block.rows, block.cols, terms);
  }
}

// The sums of all segments but the first, which is added to dw and dbias themselves; zero at first.
template <class A>
class Parts {
 public:
  Parts(const Threads& threads, const View& dw, int64_t segments)
      : count_(segments - 1), size_(dw.size() + dw.rows), memory_(scratch<A, struct WeightParts>(count_ * size_)) {
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
  const int64_t segment_rows = (dy.rows / segments + kChunkStep - 1) / kChunkStep * kChunkStep;
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

void CpuBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x) {
  dispatch(dy.dtype, [&]<class T>() { backward_weight<T>(threads_, dw, dbias, dy, x); });
}

}  // namespace tandem
