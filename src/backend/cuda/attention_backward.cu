// Attention, backward. With p = softmax(scores), m the dropout factors, dp = (dout v') m and D = sum over keys of p dp:
//   dv = (p m)' dout,   ds = p (dp - D) / sqrt(width),   dq = ds k,   dk = ds' q.
//
// A block has four warps. The weights p m and ds of a pair of tiles lie in shared memory as bf16; each of dv, dk, dq is
// then a product of 16-row pieces, one piece per warp. No two blocks add to the same number, so there are no atomics:
//  - up to 64 queries and keys, the common case: one block computes a head of the sentence in one pass. Up to 32 of
//    both: two heads at a time, each by two warps. D is the sum of p dp; `out` is not read.
//  - longer: a block of the sentence goes over the keys for its 64 queries, which gives dq, and then over the queries
//    for its share of the keys, 32 at a time, which gives dk and dv. D is the row's sum of dout out: the same number.
#include "backend/cuda/attention_backward.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem::backend {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

template <class H, int kWidth, bool kDropout, bool kVectors>
__device__ void one_pass(Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Slot& s, const Pair& pair) {
  load_queries<kVectors>(shared, a, pair);
  load_keys<kVectors>(shared, a, pair, s.first_key);
  commit_copies();
  const DropoutMask mask(a.shape.dropout);
  const Two log_sums = load_log_sums(a, pair);
  wait_copies<0>();
  __syncthreads();
  const int own = 16 * pair.warp;  // the warp's first row of queries and of keys
  if (own < pair.queries) {
    weigh_all<H, kWidth, kDropout>(shared, log_sums, a, pair, mask);
  }
  __syncthreads();

  const int column = pair.head * a.shape.width;
  const uint8_t* slab = shared.v + (pair.base + own) * kRowBytes<kWidth>;  // the values are not needed any more
  const auto write_keys = [&](const Matrix<H>& gradient, const H* weights, const uint8_t* rows) {
    float sums[kWidth / 8][4] = {};
    add_key_gradient<kWidth>(sums, weights, rows, own, pair);
    store_rows<kWidth, true, kVectors>(gradient, s.first_key, column, own, pair.keys, slab, sums, {1, 1},
                                       a.shape.width);
  };
  if (own < round_up(pair.keys, kKeyStep)) {
    write_keys(a.dv, shared.weights, shared.dout);
    write_keys(a.dk, shared.dscores, shared.q);
  }
  if (own < pair.queries) {
    float sums[kWidth / 8][4] = {};
    multiply_weights<kWidth, false>(sums, shared.dscores + (pair.base + own) * kWeightPitch,
                                    shared.k + pair.base * kRowBytes<kWidth>, 0,
                                    round_up(pair.visible(own + 16), kKeyStep));
    store_rows<kWidth, false, kVectors>(a.dq, pair.first_row, column, own, pair.queries, slab, sums, {1, 1},
                                        a.shape.width);
  }
}

// Computes dq of the pair's queries, over all the keys that they see.
template <class H, int kWidth, bool kDropout, bool kVectors>
__device__ void long_queries(Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Slot& s, Pair pair) {
  const int own = 16 * pair.warp;
  const int end = a.shape.causal ? min(s.keys, pair.first_query + pair.queries) : s.keys;
  load_queries<kVectors>(shared, a, pair);
  const DropoutMask mask(a.shape.dropout);
  const Two log_sums = load_log_sums(a, pair);
  Two products = {};
  float sums[kWidth / 8][4] = {};
  for (int first = 0; first < end; first += kTile) {
    pair.first_key = first;
    pair.keys = min(kTile, s.keys - first);
    __syncthreads();
    load_keys<kVectors>(shared, a, pair, s.first_key + first);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    if (first == 0) {
      products = sum_of_products<kVectors>(shared, a, pair);
    }
    for (int key = 0; own < pair.queries && key < pair.visible(own + 16); key += kKeyStep) {
      weigh_part<H, kWidth, kDropout>(shared, log_sums, products, key, a, pair, mask);
      __syncwarp();
      multiply_weights<kWidth, false>(sums, shared.dscores + own * kWeightPitch, shared.k, key, key + kKeyStep);
    }
  }
  __syncthreads();
  if (own < pair.queries) {
    store_rows<kWidth, false, kVectors>(a.dq, pair.first_row, pair.head * a.shape.width, own, pair.queries,
                                        shared.v + own * kRowBytes<kWidth>, sums, {1, 1}, a.shape.width);
  }
}

// Computes dk and dv of the pair's keys, at most 32, over all the queries that see them, with two warps for each.
template <class H, int kWidth, bool kDropout, bool kVectors>
__device__ void long_keys(Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Slot& s, Pair pair) {
  const int row = s.first_key + pair.first_key;
  const int own = 16 * (pair.warp % 2);
  const bool values = pair.warp < 2;
  __syncthreads();
  load_keys<kVectors>(shared, a, pair, row);
  commit_copies();
  const DropoutMask mask(a.shape.dropout);
  float sums[kWidth / 8][4] = {};
  for (int first = a.shape.causal ? pair.first_key / kTile * kTile : 0; first < s.queries; first += kTile) {
    pair.first_query = first;
    pair.first_row = s.first_query + first;
    pair.queries = min(kTile, s.queries - first);
    __syncthreads();
    load_queries<kVectors>(shared, a, pair);
    commit_copies();
    const Two log_sums = load_log_sums(a, pair);
    wait_copies<0>();
    __syncthreads();
    const Two products = sum_of_products<kVectors>(shared, a, pair);
    if (16 * pair.warp < pair.queries && pair.visible(16 * pair.warp + 16) > 0) {
      weigh_part<H, kWidth, kDropout>(shared, log_sums, products, 0, a, pair, mask);
    }
    __syncthreads();
    add_key_gradient<kWidth>(sums, values ? shared.weights : shared.dscores, values ? shared.dout : shared.q, own,
                             pair);
  }
  const Matrix<H>& gradient = values ? a.dv : a.dk;
  wait_copies<0>();
  __syncthreads();
  store_rows<kWidth, true, kVectors>(gradient, row, pair.head * a.shape.width, own, pair.keys,
                                     shared.v + 16 * pair.warp * kRowBytes<kWidth>, sums, {1, 1}, a.shape.width);
}

// Zeroes the block's share of the gradients if there is nothing to attend to; `tiles` blocks share the rows.
template <bool kVectors, class H>
__device__ void clear(const BackwardArguments<H>& a, const Slot& s, int tiles, int head) {
  const int column = head * a.shape.width, first = s.tile * kTile;
  const auto clear_part = [&](const Matrix<H>& to, int row, int count) {
    clear_rows<kVectors, kBackwardThreads>(to, row, column, count, a.shape.width);
  };
  clear_part(a.dq, s.first_query + first, min(kTile, s.queries - first));
  for (int key = first; key < s.keys; key += tiles * kTile) {
    const int count = min(kTile, s.keys - key);
    clear_part(a.dk, s.first_key + key, count);
    clear_part(a.dv, s.first_key + key, count);
  }
}

template <class H, int kWidth, bool kDropout, bool kVectors>
__global__ void __launch_bounds__(kBackwardThreads, kWidth <= 64 ? 4 : 2)
    attention_backward_kernel(const __grid_constant__ BackwardArguments<H> a) {
  fetch_slots_ahead(a.shape);
  await_previous();
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<H, kWidth>*>(memory);
  const int head = head_of_block();
  const Slot s = slot_of_block(a.shape);
  const int tiles = max(1, (s.queries + kTile - 1) / kTile);
  if (s.tile >= tiles) {
    return;
  }
  if (!s.attends) {
    clear<kVectors>(a, s, tiles, head);
    return;
  }
  Pair pair = {.head = head,
               .base = 0,
               .warp = static_cast<int>(threadIdx.x / kWarp),
               .warps = kBackwardThreads / kWarp,
               .first_row = s.first_query,
               .first_query = 0,
               .queries = s.queries,
               .first_key = 0,
               .keys = s.keys,
               .causal = a.shape.causal};
  if (s.queries <= kTile && s.keys <= kTile) {
    if (s.queries <= kTile / 2 && s.keys <= kTile / 2) {
      if (head % 2 == 1) {
        return;  // the previous head's block computes both
      }
      const int half = pair.warp / 2;
      pair.warps = 2;
      pair.warp %= 2;
      pair.base = kTile / 2 * half;
      pair.head += half;
      if (pair.head == a.shape.heads) {
        pair.queries = pair.keys = 0;
      }
    }
    one_pass<H, kWidth, kDropout, kVectors>(shared, a, s, pair);
    return;
  }
  pair.first_query = s.tile * kTile;
  pair.first_row += pair.first_query;
  pair.queries = min(kTile, s.queries - pair.first_query);
  long_queries<H, kWidth, kDropout, kVectors>(shared, a, s, pair);
  for (int first = s.tile * kKeyStep; first < s.keys; first += tiles * kKeyStep) {
    pair.first_key = first;
    pair.keys = min(kKeyStep, s.keys - first);
    long_keys<H, kWidth, kDropout, kVectors>(shared, a, s, pair);
  }
}

}  // namespace

void op::AttentionBackward::run(CudaBackend& gpu) const {
  require(dq.dtype == DType::bf16 && log_sums.dtype == DType::f32, "attention on a GPU computes in bf16 with f32 sums");
  if (q.size() == 0 && k.size() == 0) {
    return;
  }
  BackwardArguments<Bf16> arguments{.shape = attention_arguments(gpu, shape, kTile, q, k),
                                    .dq = Matrix<Bf16>(dq),
                                    .dk = Matrix<Bf16>(dk),
                                    .dv = Matrix<Bf16>(dv),
                                    .dout = Matrix<Bf16>(dout),
                                    .out = Matrix<Bf16>(out),
                                    .q = Matrix<Bf16>(q),
                                    .k = Matrix<Bf16>(k),
                                    .v = Matrix<Bf16>(v),
                                    .log_sums = data<float>(log_sums),
                                    .log_sums_stride = log_sums.stride,
                                    .log2_kept = std::log2(DropoutArguments(shape.dropout).scale),
                                    .d_scale = 0};
  if (const float kept = arguments.shape.dropout.scale; kept > 0) {
    arguments.d_scale = arguments.shape.scale / kept;
  }
  const auto run = [&]<int kWidth, bool kDropout, bool kVectors>() {
    const auto kernel = attention_backward_kernel<Bf16, kWidth, kDropout, kVectors>;
    constexpr int kBytes = sizeof(Shared<Bf16, kWidth>);
    launch("attention_backward", kernel, {attention_blocks(arguments.shape), kBackwardThreads, kBytes, gpu.queue()},
           arguments);
  };
  for_width(arguments.shape, {dq, dk, dv, dout, out, q, k, v}, run);
}

}  // namespace tandem::backend
