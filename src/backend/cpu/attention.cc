#include "backend/cpu/attention_block.h"

namespace tandem::backend {

namespace {

// Replaces n scores by exp(score - most), writes zeros after them up to `stride`, and returns the largest score and the
// sum of the exponentials.
template <class A>
std::pair<A, A> exponentiate(A* scores, int64_t n, int64_t stride) {
  const A lowest = -std::numeric_limits<A>::infinity();
  Vec<A> largest = splat(lowest);
  for_vectors<A>(n,
                 [&](int64_t i, auto part) { largest = maximum(keep(load(scores + i, part), lowest, part), largest); });
  const A most = max_lanes<A>(largest);
  Vec<A> sum{};
  for_vectors<A>(n, [&](int64_t i, auto part) {
    const Vec<A> value = keep(fast_exp(load(scores + i, part) - most), A{0}, part);
    sum += value;
    store(scores + i, value, part);
  });
  std::fill(scores + n, scores + stride, A{0});
  return {most, sum_lanes(sum)};
}

template <class A>
void multiply_in_place(A* values, const A* factors, int64_t n) {
  for_vectors<A>(
      n, [&](int64_t i, auto part) { store(values + i, load(values + i, part) * load(factors + i, part), part); });
}

// Memory for one block: all of k' and v, kBlockRows rows of everything else.
template <class A>
struct Workspace {
  A *keys, *values, *queries, *scores, *factors, *out;

  explicit Workspace(const AttentionBlock& block) {
    const int64_t width = padded(block.width), keys_wide = padded(block.keys);
    keys = scratch<A, struct AttentionForward>(width * keys_wide + width * block.keys +
                                               kBlockRows * (2 * width + keys_wide) + keys_wide);
    values = keys + width * keys_wide;
    queries = values + width * block.keys;
    scores = queries + kBlockRows * width;
    factors = scores + kBlockRows * keys_wide;
    out = factors + keys_wide;
  }
};

template <class T>
void attend(const op::Attention& op, const AttentionBlock& block, const DropoutMask& mask) {
  using A = Wide<T>;
  const int64_t width = padded(block.width), keys_wide = padded(block.keys);
  const A scale = A{1} / std::sqrt(static_cast<A>(block.width));
  const Workspace<A> work(block);
  gather_transposed<T>(work.keys, op.k, block.first_key, block.keys, block);
  gather<T>(work.values, op.v, block.first_key, block.keys, block);
  for (int64_t begin = 0; begin < block.queries; begin += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, block.queries - begin);
    const int64_t visible = block.visible(begin + rows - 1);
    gather<T>(work.queries, op.q, block.first_query + begin, rows, block, scale);
    multiply_block<A>(work.scores, keys_wide, {work.queries, width, 1}, work.keys, keys_wide, rows, visible,
                      block.width);
    A sums[kBlockRows];
    for (int64_t i = 0; i < rows; ++i) {
      A* scores = work.scores + i * keys_wide;
      const int64_t row = block.first_query + begin + i;
      const int64_t seen = block.visible(begin + i);
      const auto [most, sum] = exponentiate(scores, seen, visible);
      sums[i] = sum;
      if (!op.log_sums.empty()) {
        op.log_sums.host<A>()[block.head * op.log_sums.stride + row] = seen == 0 ? A{0} : most + std::log(sum);
      }
      if (mask.on()) {
        mask.fill(work.factors, row, 0, seen, static_cast<uint32_t>(block.head));
        multiply_in_place(scores, work.factors, seen);
      }
    }
    multiply_block<A>(work.out, width, {work.scores, keys_wide, 1}, work.values, width, rows, width, visible);
    for (int64_t i = 0; i < rows; ++i) {
      scatter<T>(op.out, block.first_query + begin + i, work.out + i * width, 1, block,
                 visible == 0 ? A{0} : A{1} / sums[i]);
    }
  }
}

}  // namespace

void op::PlanAttention::run(CpuBackend& /*cpu*/) const {}  // there is nothing to plan

void op::Attention::run(CpuBackend& cpu) const {
  const DropoutMask mask(shape.dropout);
  dispatch(out.dtype, [&]<class T>() {
    for_attention_blocks(cpu.threads(), shape, out.cols,
                         [&](const AttentionBlock& block) { attend<T>(*this, block, mask); });
  });
  clear_past(cpu, out, shape.query_starts);
  if (!log_sums.empty()) {
    const int64_t end = shape.query_starts.host<int32_t>()[shape.query_starts.cols - 1];
    cpu.fill_zero(log_sums.slice_cols(end, log_sums.cols - end));
  }
}

}  // namespace tandem::backend
