// Attention, forward. A block of two warps computes one head of 32 queries of a sentence and walks over the sentence's
// keys 32 at a time with a running maximum and sum; two steps of keys and values are on their way at any time, so that
// a sentence of up to 64 keys is fetched in one go. It is bound by memory: what counts is many small blocks in flight.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kTile = kForwardTile;
constexpr int kThreads = kTile / 16 * kWarp;

struct ForwardArguments {
  AttentionArguments shape;
  Matrix out, q, k, v;
  float* log_sums;  // or null
  int64_t log_sums_stride;
};

// What a warp knows of its 16 queries; [0] and [1]: rows g and g + 8 of the fragment.
template <int kWidth>
struct Queries {
  float sums[kWidth / 8][4] = {};  // of weights times values
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the weights before dropout, this lane's keys only
  int limit[2];         // keys that the query sees
  int row;              // packed row of query g
};

// Replaces scores by 2^(scaled score - scaled maximum), adds them to the total, and brings what was added up before to
// the new maximum: nothing in the first step. `key` is the position of this lane's first key.
template <int kWidth>
__device__ void exponentiate(Queries<kWidth>& queries, float (&scores)[4][4], int key, bool first, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int limit = queries.limit[r] - key;
    float most = queries.most[r];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = scores[i / 2][2 * r + i % 2];
      score = i < limit ? score : -INFINITY;
      most = fmaxf(most, score);
    }
    most = most_of_quad(most);
    const float shift = most * scale_log2;
    if (!first) {
      const float shrink = exp2_fast(queries.most[r] * scale_log2 - shift);
      queries.total[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        queries.sums[n][2 * r] *= shrink;
        queries.sums[n][2 * r + 1] *= shrink;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = scores[i / 2][2 * r + i % 2];
      score = exp2_fast(fmaf(score, scale_log2, -shift));
      queries.total[r] += score;
    }
    queries.most[r] = most;
  }
}

// One step of keys for a warp's 16 queries. `first` is the position of the step's first key.
template <int kWidth, bool kDropout>
__device__ void attend(Queries<kWidth>& queries, const Bf16* q, const Bf16* k, const Bf16* v, int first, int head,
                       float scale_log2, const DropoutMask& mask) {
  const int key = first + threadIdx.x % 4 * 8;
  float weights[4][4] = {};
  multiply_by_keys<kWidth>(weights, q, k);
  exponentiate(queries, weights, key, first == 0, scale_log2);
  uint32_t pairs[2][4];  // of rows g and g + 8
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    Philox words = {};
    if constexpr (kDropout) {
      words = mask.lanes(queries.row + 8 * r, key / 8, head);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // what dropout keeps is scaled at the end
      pairs[r][j] = pack(weights[j][2 * r], weights[j][2 * r + 1]);
      if constexpr (kDropout) {
        pairs[r][j] = keep_pair(pairs[r][j], words[j], mask.limit());
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Fragment fragment = {
        {pairs[0][2 * half], pairs[1][2 * half], pairs[0][2 * half + 1], pairs[1][2 * half + 1]}};
    multiply_by_rows<kWidth>(queries.sums, fragment, v + 16 * half * kPitch<kWidth>);
  }
}

// Writes a warp's rows of out and log_sums. `row` is the packed row of the tile's first query.
template <bool kVectors, int kWidth>
__device__ void finish(const ForwardArguments& a, const Queries<kWidth>& queries, Bf16* slab, int row, int count,
                       int head, float kept) {
  const auto first = static_cast<int>(threadIdx.x / kWarp * 16);
  const float totals[2] = {sum_of_quad(queries.total[0]), sum_of_quad(queries.total[1])};
  if (a.log_sums != nullptr && threadIdx.x % 4 == 0) {
    const int g = first + static_cast<int>(threadIdx.x % kWarp / 4);
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r < count) {
        a.log_sums[head * a.log_sums_stride + queries.row + 8 * r] =
            queries.most[r] * a.shape.scale + __logf(totals[r]);
      }
    }
  }
  store_rows<kWidth, false, kVectors>(a.out, row, head * a.shape.width, first, count, slab, queries.sums,
                                      {__fdividef(kept, totals[0]), __fdividef(kept, totals[1])}, a.shape.width);
}

template <int kWidth, bool kDropout, bool kVectors>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 ? 9 : 1) attention_kernel(const ForwardArguments a) {
  fetch_slots_ahead(a.shape);
  await_previous();
  constexpr int kSize = kTile * kPitch<kWidth>;
  static_assert(kTile == kKeyStep);
  __shared__ alignas(16) Bf16 q[kSize], k[2][kSize], v[2][kSize];
  const DropoutMask mask(a.shape.dropout);
  const int head = head_of_block(), column = head * a.shape.width;
  const auto warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const Slot s = slot_of_block(a.shape);
  const int first = s.tile * kTile;
  const int count = min(kTile, s.queries - first);
  if (count <= 0) {
    return;
  }
  const int row = s.first_query + first;
  if (!s.attends) {
    clear_rows<kVectors, kThreads>(a.out, row, column, count, a.shape.width);
    if (a.log_sums != nullptr && warp == 0 && lane < count) {
      a.log_sums[head * a.log_sums_stride + row + lane] = 0;
    }
    return;
  }
  const auto visible = [&](int query) { return a.shape.causal ? min(s.keys, first + query + 1) : s.keys; };
  const int keys = visible(count - 1);
  const auto load = [&]<bool kKeys>(Bf16* tile, const Matrix& from, int first_row, int present) {
    load_tile<kWidth, kKeys, kVectors, kThreads, kTile>(tile, from, first_row, column, present, kAllRows, a.shape.width,
                                                        threadIdx.x);
  };
  const auto load_step = [&](int begin) {
    const int stage = begin / kKeyStep % 2;
    load.template operator()<true>(k[stage], a.k, s.first_key + begin, keys - begin);
    load.template operator()<true>(v[stage], a.v, s.first_key + begin, keys - begin);
  };
  load.template operator()<false>(q, a.q, row, count);
  load_step(0);
  commit_copies();
  if (keys > kKeyStep) {
    load_step(kKeyStep);
  }
  commit_copies();

  const int own = warp * 16;  // the warp's first query
  Bf16* slab = q + own * kPitch<kWidth>;
  const int query = own + lane / 4;
  Queries<kWidth> queries;
  queries.row = row + query;
  queries.limit[0] = visible(query);
  queries.limit[1] = visible(query + 8);
  const int warp_keys = own < count ? min(keys, visible(own + 15)) : 0;
  for (int begin = 0; begin < keys; begin += kKeyStep) {
    wait_copies<1>();
    __syncthreads();
    const int stage = begin / kKeyStep % 2;
    if (begin < warp_keys) {
      attend<kWidth, kDropout>(queries, slab, k[stage], v[stage], begin, head, a.shape.scale_log2, mask);
    }
    if (begin + 2 * kKeyStep < keys) {
      __syncthreads();
      load_step(begin + 2 * kKeyStep);
    }
    commit_copies();
  }
  if (own < count) {
    finish<kVectors>(a, queries, slab, row, count, head, kDropout ? mask.scale() : 1.0F);
  }
}

}  // namespace

void CudaBackend::attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                            const AttentionShape& shape) {
  require(out.dtype == DType::bf16 && (log_sums.empty() || log_sums.dtype == DType::f32),
          "attention on a GPU computes in bf16 with f32 sums");
  if (q.size() == 0) {
    return;
  }
  const ForwardArguments arguments{.shape = attention_arguments(shape, kTile, q, k),
                                   .out = Matrix(out),
                                   .q = Matrix(q),
                                   .k = Matrix(k),
                                   .v = Matrix(v),
                                   .log_sums = data<float>(log_sums),
                                   .log_sums_stride = log_sums.stride};
  for_width(arguments.shape, {out, q, k, v}, [&]<int kWidth, bool kDropout, bool kVectors>() {
    launch("attention", attention_kernel<kWidth, kDropout, kVectors>,
           {attention_blocks(arguments.shape), kThreads, 0, stream_}, arguments);
  });
}

}  // namespace tandem
