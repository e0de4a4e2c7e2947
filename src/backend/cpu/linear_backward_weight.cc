#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

// dw is cut into blocks of kBlock x kBlock, and the sum over tokens into chunks, whose packed parts of dy and x stay in
// the cache. The sizes were measured with bench/gemm.cc.
constexpr int64_t kBlock = 512;
constexpr int64_t kChunk = 512;

// If there are few blocks, the tokens are cut into 2, 4 or 8 segments, whose sums are added in order at the end.
constexpr int64_t kPieces = 8;
constexpr int64_t kLeastSegment = 512;

int64_t segments_for(int64_t blocks, int64_t tokens) {
  int64_t segments = 1;
  while (blocks * segments * 2 <= kPieces && segments * 2 * kLeastSegment <= tokens) {
    segments *= 2;
  }
  return segments;
}

// The start of each part and the end of the last one; without `parts`, each segment is one part.
std::vector<int64_t> parts_of_segments(RowParts parts, int64_t segments, int64_t tokens) {
  if (!parts.empty()) {
    return {parts.begin(), parts.end()};
  }
  const int64_t rows = (tokens / segments + 63) / 64 * 64;
  std::vector<int64_t> equal;
  for (int64_t segment = 0; segment < segments; ++segment) {
    equal.push_back(segment * rows);
  }
  equal.push_back(tokens);
  return equal;
}

// dbias += the column sums of some rows of dy, which are first added up in scratch memory.
template <class T, class G>
void add_columns(G* dbias, const Factor<T>& dy, int64_t rows, int64_t cols) {
  using A = Wide<T>;
  G* sums = scratch<G, struct BiasSums>(cols);
  std::fill_n(sums, cols, G{0});
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = dy.data + row * dy.stride;
    for_vectors<A>(cols, [&](int64_t i, auto part) { add_to<A>(sums + i, load(from + i, part), part); });
  }
  for (int64_t i = 0; i < cols; ++i) {
    dbias[i] += sums[i];
  }
}

// dw block = (or +=) dy' x over the tokens [begin, end) of one part, at least one; dbias += dy's column sums, unless
// it is null.
template <class T, class G>
void sum_tokens(const Target<G>& dw, G* dbias, const ConstView& dy, const ConstView& x, const Block& block,
                int64_t begin, int64_t end) {
  using A = Wide<T>;
  constexpr bool kAside = !std::is_same_v<A, G>;
  Target<A> sums;
  if constexpr (kAside) {
    sums = {scratch<A, struct WeightAside>(block.rows * block.cols), block.cols, false};
  } else {
    sums = dw;
  }
  for (int64_t token = begin; token < end; token += kChunk) {
    const int64_t tokens = std::min(kChunk, end - token);
    const Factor<T> a{dy.host<T>() + token * dy.stride + block.row, dy.stride, true};
    const Factor<T> b{x.host<T>() + token * x.stride + block.col, x.stride};
    multiply(sums, a, b, block.rows, block.cols, tokens);
    sums.add = true;
    if (dbias != nullptr) {
      add_columns(dbias, a, tokens, block.rows);
    }
  }
  for (int64_t row = 0; kAside && row < block.rows; ++row) {
    const A* from = sums.data + row * sums.stride;
    G* to = dw.data + row * dw.stride;
    if (!dw.add) {
      std::fill_n(to, block.cols, G{0});
    }
    for_vectors<A>(block.cols, [&](int64_t i, auto part) { add_to<A>(to + i, load(from + i, part), part); });
  }
}

// The sums of all segments except the first, which is added to dw and dbias directly; they begin at zero.
template <class G>
class Segments {
 public:
  Segments(const Threads& threads, const View& dw, int64_t segments)
      : count_(segments - 1),
        size_((dw.size() + dw.rows + 63) / 64 * 64),
        memory_(scratch<G, struct WeightSegments>(count_ * size_)) {
    for_chunks(threads, count_ * size_, 1 << 16,
               [&](int64_t begin, int64_t end) { std::fill(memory_ + begin, memory_ + end, G{0}); });
  }

  G* dw(int64_t segment) const { return memory_ + (segment - 1) * size_; }
  G* dbias(int64_t segment, const View& dw) const { return memory_ + (segment - 1) * size_ + dw.size(); }

  // to += the segments' sums, in order; they lie `offset` elements after each segment's beginning.
  void add_to(const View& to, int64_t offset, const Threads& threads) const {
    for_chunks(threads, count_ == 0 ? 0 : to.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        G* sum = to.host<G>() + row * to.stride;
        for (int64_t segment = 0; segment < count_; ++segment) {
          const G* from = memory_ + segment * size_ + offset + row * to.cols;
          for (int64_t i = 0; i < to.cols; ++i) {
            sum[i] += from[i];
          }
        }
      }
    });
  }

 private:
  int64_t count_, size_;
  G* memory_;
};

template <class T, class G>
void backward_weight(const Threads& threads, const WeightGradient& gradient, RowParts row_parts, bool accumulate) {
  const View &dw = gradient.dw, &dbias = gradient.dbias;
  const ConstView &dy = gradient.dy, &x = gradient.x;
  const int64_t down = (dw.rows + kBlock - 1) / kBlock;
  const int64_t blocks = down * ((dw.cols + kBlock - 1) / kBlock);
  const int64_t segments = segments_for(blocks, dy.rows);
  const std::vector<int64_t> parts = parts_of_segments(row_parts, segments, dy.rows);
  const auto first_part = [&](int64_t segment) {
    return static_cast<size_t>((std::ssize(parts) - 1) * segment / segments);
  };
  const Segments<G> sums(threads, dw, segments);
  threads.parallel_for(blocks * segments, [&](int64_t piece) {
    const int64_t segment = piece / blocks;
    const int64_t row = piece % blocks % down * kBlock;
    const int64_t col = piece % blocks / down * kBlock;
    const Block block{row, std::min(kBlock, dw.rows - row), col, std::min(kBlock, dw.cols - col)};
    Target<G> target{dw.host<G>() + row * dw.stride + col, dw.stride, accumulate};
    G* bias = dbias.empty() || col > 0 ? nullptr : dbias.host<G>() + row;
    if (segment > 0) {
      target = {sums.dw(segment) + row * dw.cols + col, dw.cols, true};
      bias = bias == nullptr ? nullptr : sums.dbias(segment, dw) + row;
    }
    for (size_t part = first_part(segment); part < first_part(segment + 1); ++part) {
      if (parts[part] < parts[part + 1]) {
        sum_tokens<T, G>(target, bias, dy, x, block, parts[part], parts[part + 1]);
        target.add = true;
      }
    }
    for (int64_t i = 0; !target.add && i < block.rows; ++i) {
      std::fill_n(target.data + i * target.stride, block.cols, G{0});
    }
  });
  sums.add_to(dw, 0, threads);
  if (!dbias.empty()) {
    sums.add_to(dbias, dw.size(), threads);
  }
}

}  // namespace

void op::LinearBackwardWeights::run(CpuBackend& cpu) const {
  for (const WeightGradient& gradient : gradients) {
    if (!accumulate) {
      cpu.fill_zero(gradient.dbias);
    }
    dispatch(gradient.dy.dtype, [&]<class T>() {
      dispatch_sums<T>(gradient.dw.dtype,
                       [&]<class G>() { backward_weight<T, G>(cpu.threads(), gradient, parts, accumulate); });
    });
  }
}

}  // namespace tandem::backend
