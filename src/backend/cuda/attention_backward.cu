// Attention, backward. With p = softmax(scores), m the dropout factors, dp = (dout v') m and D = sum over keys of p dp:
//   dv = (p m)' dout,   ds = p (dp - D) / sqrt(width),   dq = ds k,   dk = ds' q.
//
// A block of two warps computes one head of a sentence after the other. A warp has the weights p m and ds of 16 queries
// in registers, which gives dq; they go to shared memory as bf16 and are read from there transposed, 16 keys a warp,
// which gives dk and dv. The factors come from device memory in the order that the tensor cores want; what is read
// again is in the cache. Nothing is added by two blocks, so there are no atomics:
//  - up to 64 queries and keys, the common case: one block computes a head in one pass. Up to 32 keys D is the sum of
//    p dp, and `out` is not read.
//  - longer: a block of the sentence goes over the keys for its 64 queries, which gives dq, and then over the queries
//    for its share of the keys, 32 at a time, which gives dk and dv. D is the row's sum of dout out: the same number.
#include "backend/cuda/attention_backward.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kHeads = 2;  // of a block

template <int kWidth, bool kDropout, bool kWhole>
__device__ void one_pass(Shared& shared, const BackwardArguments& a, const Part& part, const DropoutMask& mask) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll 1
  for (int first = 16 * warp; first < part.queries; first += kThreads / 2) {
    Queries<kWidth> queries;
    queries.template load<kWhole>(first, a, part);
    const int keys = part.visible(first + 16);
    const bool once = keys <= kKeyStep;
    Two d;
    if (!once) {
      d = sum_of_products<kWidth, kWhole>(queries, a, part);
    }
    float dq[kWidth / 8][4] = {};
#pragma unroll 1
    for (int key = 0; key < keys; key += kKeyStep) {
      const int at = first * kWeightPitch + key;
      Weights w;
      weigh<kWidth, kDropout, kWhole>(w, queries, key, a, part, mask).store(shared.weights + at);
      if (once) {
        d = sum_of_weighted(w);
      }
      const Pairs ds = dscores(w, d, a.shape.scale);
      ds.store(shared.dscores + at);
      add_query_gradient<kWidth, kWhole>(dq, ds, key, a, part);
    }
    store_gradient<kWidth, kWhole>(a.dq, dq, part.first_query + first, part.queries - first, a, part);
  }
  __syncthreads();
#pragma unroll 1
  for (int key = 16 * warp; key < part.keys; key += kThreads / 2) {
    const int first = part.causal ? key / kKeyStep * kKeyStep : 0;  // the queries before did not look at this key
    const auto write = [&](const Matrix& gradient, const Bf16* weights, const Matrix& rows) {
      float sums[kWidth / 8][4] = {};
      add_key_gradient<kWidth, kWhole>(sums, weights + first * kWeightPitch + key, rows, first, part.queries - first, a,
                                       part);
      store_gradient<kWidth, kWhole>(gradient, sums, part.first_key + key, part.keys - key, a, part);
    };
    write(a.dv, shared.weights, a.dout);
    write(a.dk, shared.dscores, a.q);
  }
  __syncthreads();
}

// dq of 16 queries, over all the keys that they see.
template <int kWidth, bool kDropout, bool kWhole>
__device__ void long_queries(const BackwardArguments& a, const Part& part, int first, const DropoutMask& mask) {
  Queries<kWidth> queries;
  queries.template load<kWhole>(first, a, part);
  const Two d = sum_of_products<kWidth, kWhole>(queries, a, part);
  float dq[kWidth / 8][4] = {};
#pragma unroll 1
  for (int key = 0; key < part.visible(first + 16); key += kKeyStep) {
    Weights w;
    weigh<kWidth, kDropout, kWhole>(w, queries, key, a, part, mask);
    add_query_gradient<kWidth, kWhole>(dq, dscores(w, d, a.shape.scale), key, a, part);
  }
  store_gradient<kWidth, kWhole>(a.dq, dq, part.first_query + first, part.queries - first, a, part);
}

// dv (kValues) or dk of the 32 keys from `key` on, over all the queries that see them. One after the other: there are
// no registers for the sums of both.
template <int kWidth, bool kDropout, bool kWhole, bool kValues>
__device__ void long_keys(Shared& shared, const BackwardArguments& a, const Part& part, int key,
                          const DropoutMask& mask) {
  const int own = 16 * (static_cast<int>(threadIdx.x) / kWarp);  // the warp's first query and first key
  float sums[kWidth / 8][4] = {};
#pragma unroll 1
  for (int first = part.causal ? key : 0; first < part.queries; first += 2 * 16) {
    if (first + own < part.queries) {
      Queries<kWidth> queries;
      queries.template load<kWhole>(first + own, a, part);
      Weights w;
      Pairs pairs = weigh<kWidth, kDropout, kWhole>(w, queries, key, a, part, mask);
      if constexpr (!kValues) {
        pairs = dscores(w, sum_of_products<kWidth, kWhole>(queries, a, part), a.shape.scale);
      }
      pairs.store(shared.weights + own * kWeightPitch);
    }
    __syncthreads();
    add_key_gradient<kWidth, kWhole>(sums, shared.weights + own, kValues ? a.dout : a.q, first,
                                     min(2 * 16, part.queries - first), a, part);
    __syncthreads();
  }
  store_gradient<kWidth, kWhole>(kValues ? a.dv : a.dk, sums, part.first_key + key + own, part.keys - key - own, a,
                                 part);
}

// Zeros where there is nothing to attend to, in the block's share of the rows; tiles is the number of such blocks.
__device__ void clear(const BackwardArguments& a, const Sentence& s, int tiles, int column) {
  const Team team = {static_cast<int>(threadIdx.x), kThreads};
  const int first = s.tile * kTile;
  clear_rows(a.dq, s.first_query + first, column, min(kTile, s.queries - first), a.shape, team);
  for (int key = first; key < s.keys; key += tiles * kTile) {
    const int count = min(kTile, s.keys - key);
    clear_rows(a.dk, s.first_key + key, column, count, a.shape, team);
    clear_rows(a.dv, s.first_key + key, column, count, a.shape, team);
  }
}

template <int kWidth, bool kDropout, bool kWhole>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 && kWhole ? 6 : 4)
    attention_backward_kernel(const __grid_constant__ BackwardArguments a) {
  __shared__ alignas(16) Shared shared;
  const int groups = (a.shape.heads + kHeads - 1) / kHeads;
  const int first_head = static_cast<int>(blockIdx.x % groups) * kHeads;
  const int end_head = min(a.shape.heads, first_head + kHeads);
  const Sentence s = find_sentence<kTile>(a.shape, static_cast<int>(blockIdx.x / groups));
  const int tiles = max(1, (s.queries + kTile - 1) / kTile);
  if (s.tile >= tiles) {
    return;
  }
  const auto for_heads = [&](const auto& work) {
#pragma unroll 1
    for (int head = first_head; head < end_head; ++head) {
      work(Part{.head = head,
                .column = head * a.shape.width,
                .first_query = s.first_query,
                .queries = s.queries,
                .first_key = s.first_key,
                .keys = s.keys,
                .causal = a.shape.causal});
    }
  };
  if (!s.attends) {
    for_heads([&](const Part& part) { clear(a, s, tiles, part.column); });
    return;
  }
  const DropoutMask mask(a.shape.dropout);
  if (s.queries <= kTile && s.keys <= kTile) {
    for_heads([&](const Part& part) { one_pass<kWidth, kDropout, kWhole>(shared, a, part, mask); });
    return;
  }
  for_heads([&](const Part& part) {
    const int first = s.tile * kTile + static_cast<int>(threadIdx.x) / kWarp * 16;
#pragma unroll 1
    for (int i = first; i < min(s.queries, (s.tile + 1) * kTile); i += kThreads / 2) {
      long_queries<kWidth, kDropout, kWhole>(a, part, i, mask);
    }
#pragma unroll 1
    for (int key = s.tile * kKeyStep; key < s.keys; key += tiles * kKeyStep) {
      long_keys<kWidth, kDropout, kWhole, true>(shared, a, part, key, mask);
      long_keys<kWidth, kDropout, kWhole, false>(shared, a, part, key, mask);
    }
  });
}

}  // namespace

void CudaBackend::attention_backward(const View& dq, const View& dk, const View& dv, const View& dout, const View& out,
                                     const View& log_sums, const View& q, const View& k, const View& v,
                                     const AttentionShape& shape) {
  require(dq.dtype == DType::bf16 && log_sums.dtype == DType::f32, "attention on a GPU computes in bf16 with f32 sums");
  if (q.size() == 0 && k.size() == 0) {
    return;
  }
  BackwardArguments arguments{.shape = attention_arguments(shape, q, k),
                              .dq = Matrix(dq),
                              .dk = Matrix(dk),
                              .dv = Matrix(dv),
                              .dout = Matrix(dout),
                              .out = Matrix(out),
                              .q = Matrix(q),
                              .k = Matrix(k),
                              .v = Matrix(v),
                              .log_sums = data<float>(log_sums),
                              .log_sums_stride = log_sums.stride};
  for (const View* view : {&dq, &dk, &dv, &dout, &out, &q, &k, &v}) {
    arguments.shape.vectors &= vectors_of_8(*view);
  }
  const auto blocks = static_cast<unsigned>(slots<kTile>(arguments.shape) * divide_up(shape.heads, kHeads));
  for_width(arguments.shape, [&]<int kWidth, bool kDropout, bool kWhole>() {
    attention_backward_kernel<kWidth, kDropout, kWhole><<<blocks, kThreads, 0, stream_>>>(arguments);
  });
  check_launch("attention_backward");
}

}  // namespace tandem
