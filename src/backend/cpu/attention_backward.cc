#include "backend/cpu/attention_block.h"

namespace tandem::backend {

namespace {

// With p = softmax(s), m the dropout factors and o = (p m) v:
//   dv = (p m)' do,   dp = (do v') m,   ds = p (dp - sum over keys of p dp),   dq = ds k,   dk = ds' q.

// scores: q k' becomes p m. dweights: do v' becomes ds. Columns from `visible` on become 0.
template <class A>
void backward_row(A* scores, A* dweights, const A* factors, A log_sum, int64_t visible, int64_t stride) {
  Vec<A> sum{};
  for_vectors<A>(visible, [&](int64_t i, auto part) {
    const Vec<A> p = keep(fast_exp(load(scores + i, part) - log_sum), A{0}, part);
    const Vec<A> dp = load(dweights + i, part) * load(factors + i, part);
    sum += p * dp;
    store(scores + i, p, part);
    store(dweights + i, dp, part);
  });
  const A weighted = sum_lanes(sum);
  for_vectors<A>(visible, [&](int64_t i, auto part) {
    const Vec<A> p = load(scores + i, part);
    store(dweights + i, p * (load(dweights + i, part) - weighted), part);
    store(scores + i, p * load(factors + i, part), part);
  });
  std::fill(scores + visible, scores + stride, A{0});
  std::fill(dweights + visible, dweights + stride, A{0});
}

// Matrices of one block. Transposed: [width, keys]; scores and dweights: [queries, keys]; the rest [rows, width].
template <class A>
struct Workspace {
  A *q, *k, *dout, *k_transposed, *v_transposed, *scores, *dweights, *factors, *result;

  explicit Workspace(const AttentionBlock& block) {
    const int64_t width = padded(block.width), keys_wide = padded(block.keys);
    const int64_t tokens = 2 * block.queries + block.keys;
    q = scratch<A, struct AttentionBackward>(width * (tokens + 2 * keys_wide + kBlockRows) +
                                             (2 * block.queries + 1) * keys_wide);
    dout = q + width * block.queries;
    k = dout + width * block.queries;
    k_transposed = k + width * block.keys;
    v_transposed = k_transposed + width * keys_wide;
    scores = v_transposed + width * keys_wide;
    dweights = scores + block.queries * keys_wide;
    factors = dweights + block.queries * keys_wide;
    result = factors + keys_wide;
  }
};

// Fills scores and dweights and writes dq, a few queries at a time.
template <class T>
void backward_queries(const View& dq, const Workspace<Wide<T>>& work, const ConstView& log_sums,
                      const AttentionBlock& block, const DropoutMask& mask, Wide<T> scale) {
  using A = Wide<T>;
  const int64_t width = padded(block.width), keys_wide = padded(block.keys);
  std::fill_n(work.factors, keys_wide, A{1});
  for (int64_t begin = 0; begin < block.queries; begin += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, block.queries - begin);
    const int64_t visible = block.visible(begin + rows - 1);
    A* scores = work.scores + begin * keys_wide;
    A* dweights = work.dweights + begin * keys_wide;
    multiply_block<A>(scores, keys_wide, {work.q + begin * width, width, 1}, work.k_transposed, keys_wide, rows,
                      visible, block.width);
    multiply_block<A>(dweights, keys_wide, {work.dout + begin * width, width, 1}, work.v_transposed, keys_wide, rows,
                      visible, block.width);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = block.first_query + begin + i;
      const int64_t seen = block.visible(begin + i);
      if (mask.on()) {
        mask.fill(work.factors, row, 0, seen, static_cast<uint32_t>(block.head));
      }
      backward_row(scores + i * keys_wide, dweights + i * keys_wide, work.factors,
                   log_sums.host<A>()[block.head * log_sums.stride + row], seen, keys_wide);
    }
    multiply_block<A>(work.result, width, {dweights, keys_wide, 1}, work.k, width, rows, width, visible);
    scatter<T>(dq, block.first_query + begin, work.result, rows, block, scale);
  }
}

// dk = ds' q (q is scaled already) or dv = (p m)' do: gradient [keys, width] = weights' [keys, queries] rows.
template <class T>
void backward_keys(const View& gradient, const Workspace<Wide<T>>& work, const Wide<T>* weights, const Wide<T>* rows,
                   const AttentionBlock& block) {
  using A = Wide<T>;
  const int64_t width = padded(block.width), keys_wide = padded(block.keys);
  for (int64_t begin = 0; begin < block.keys; begin += kBlockRows) {
    const int64_t count = std::min(kBlockRows, block.keys - begin);
    const int64_t first = block.causal ? std::min(begin, block.queries) : 0;  // earlier queries do not see these keys
    multiply_block<A>(work.result, width, {weights + first * keys_wide + begin, 1, keys_wide}, rows + first * width,
                      width, count, width, block.queries - first);
    scatter<T>(gradient, block.first_key + begin, work.result, count, block);
  }
}

}  // namespace

void op::AttentionBackward::run(CpuBackend& cpu) const {
  const DropoutMask mask(shape.dropout);
  dispatch(dq.dtype, [&]<class T>() {
    using A = Wide<T>;
    for_attention_blocks(cpu.threads(), shape, dq.cols, [&](const AttentionBlock& block) {
      const A scale = A{1} / std::sqrt(static_cast<A>(block.width));
      const Workspace<A> work(block);
      gather<T>(work.q, q, block.first_query, block.queries, block, scale);
      gather<T>(work.dout, dout, block.first_query, block.queries, block);
      gather<T>(work.k, k, block.first_key, block.keys, block);
      gather_transposed<T>(work.k_transposed, k, block.first_key, block.keys, block);
      gather_transposed<T>(work.v_transposed, v, block.first_key, block.keys, block);
      backward_queries<T>(dq, work, log_sums, block, mask, scale);
      backward_keys<T>(dk, work, work.dweights, work.q, block);
      backward_keys<T>(dv, work, work.scores, work.dout, block);
    });
  });
  clear_past(cpu, dq, shape.query_starts);
  clear_past(cpu, dk, shape.key_starts);
  clear_past(cpu, dv, shape.key_starts);
}

}  // namespace tandem::backend
