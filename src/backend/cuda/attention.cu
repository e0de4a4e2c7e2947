// Attention, forward. A block of two warps computes two heads of 32 queries of a sentence, one behind the other, and
// walks over the sentence's keys 32 at a time with a running maximum and sum. Two steps of keys and values are on their
// way at any time, those of the next head behind those of this one: what a block waits for is the first step only.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kTile = 32;  // queries of a block
constexpr int kThreads = kTile / 16 * kWarp;

template <int kWidth>
constexpr int kHeads = kWidth <= 64 ? 2 : 1;  // of a block

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
  int64_t row;          // packed row of query g
};

// Replaces scores by 2^(scaled score - scaled maximum), adds them to the total, and brings what was added up before to
// the new maximum. `key` is the position of this lane's first key; nothing was added up before the sentence's first.
template <int kWidth>
__device__ void exponentiate(Queries<kWidth>& queries, float (&scores)[4][4], int key, float scale_log2) {
  const bool more = key >= kKeyStep;
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
    const float shrink = exp2_fast(queries.most[r] * scale_log2 - shift);
    float total = queries.total[r] * shrink;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = scores[i / 2][2 * r + i % 2];
      score = exp2_fast(fmaf(score, scale_log2, -shift));
      total += score;
    }
    queries.most[r] = most;
    queries.total[r] = total;
    if (more) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        queries.sums[n][2 * r] *= shrink;
        queries.sums[n][2 * r + 1] *= shrink;
      }
    }
  }
}

// Zeros where dropout drops; what remains is scaled at the end.
__device__ void drop(float (&weights)[4][4], const DropoutMask& mask, int64_t row, int key, int head) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Philox words = mask.lanes(row + 8 * r, key / 8, head);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      weights[j][2 * r] = mask.keeps_low(words[j]) ? weights[j][2 * r] : 0.0F;
      weights[j][2 * r + 1] = mask.keeps_high(words[j]) ? weights[j][2 * r + 1] : 0.0F;
    }
  }
}

// One step of keys for a warp's 16 queries. `first` is the position of the step's first key.
template <int kWidth, bool kDropout>
__device__ void attend(Queries<kWidth>& queries, const Bf16* q, const Bf16* k, const Bf16* v, int first, int head,
                       float scale_log2, const DropoutMask& mask) {
  const int key = first + threadIdx.x % 4 * 8;
  float weights[4][4] = {};
  multiply_by_keys<kWidth>(weights, q, k);
  exponentiate(queries, weights, key, scale_log2);
  if constexpr (kDropout) {
    drop(weights, mask, queries.row, key, head);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&left)[4] = weights[2 * half];
    const float(&right)[4] = weights[2 * half + 1];
    const Fragment fragment = {
        {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3])}};
    multiply_by_rows<kWidth>(queries.sums, fragment, v + 16 * half * kPitch<kWidth>);
  }
}

// Writes a warp's rows of out and log_sums. `row` is the packed row of the tile's first query.
template <int kWidth>
__device__ void finish(const ForwardArguments& a, const Queries<kWidth>& queries, Bf16* slab, int64_t row, int count,
                       int head, float kept) {
  const int first = static_cast<int>(threadIdx.x) / kWarp * 16;
  const float totals[2] = {sum_of_quad(queries.total[0]), sum_of_quad(queries.total[1])};
  if (a.log_sums != nullptr && threadIdx.x % 4 == 0) {
    const int g = first + static_cast<int>(threadIdx.x) % kWarp / 4;
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r < count) {
        a.log_sums[head * a.log_sums_stride + queries.row + 8 * r] =
            queries.most[r] * a.shape.scale + __logf(totals[r]);
      }
    }
  }
  store_rows<kWidth, false>(a.out.at(row, int64_t{head} * a.shape.width), a.out.stride, first, count, slab,
                            queries.sums, {__fdividef(kept, totals[0]), __fdividef(kept, totals[1])}, a.shape);
}

// A head and a step of its keys.
struct Step {
  int head, key;

  __device__ void advance(int keys) {
    key += kKeyStep;
    if (key >= keys) {
      key = 0;
      ++head;
    }
  }
};

// Zeros for the queries of the heads [begin, end).
__device__ void clear(const ForwardArguments& a, int begin, int end, int64_t row, int count) {
  const Team team = {static_cast<int>(threadIdx.x), kThreads};
  for (int head = begin; head < end; ++head) {
    clear_rows(a.out.at(row, int64_t{head} * a.shape.width), a.out.stride, count, a.shape, team);
    if (a.log_sums != nullptr && team.thread < count) {
      a.log_sums[head * a.log_sums_stride + row + team.thread] = 0;
    }
  }
}

template <int kWidth, bool kDropout>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 ? 8 : 4) attention_kernel(const ForwardArguments a) {
  await_previous();
  constexpr int kSize = kTile * kPitch<kWidth>;
  static_assert(kTile == kKeyStep);
  __shared__ alignas(16) Bf16 q[kHeads<kWidth>][kSize], k[2][kSize], v[2][kSize];
  const int groups = (a.shape.heads + kHeads<kWidth> - 1) / kHeads<kWidth>;
  const int first_head = static_cast<int>(blockIdx.x) % groups * kHeads<kWidth>;
  const int end_head = min(first_head + kHeads<kWidth>, a.shape.heads);
  const Sentence s = find_sentence<kTile>(a.shape, static_cast<int>(blockIdx.x) / groups);
  const int first = s.tile * kTile;
  const int count = min(kTile, s.queries - first);
  if (count <= 0) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = s.first_query + first;
  if (!s.attends) {
    clear(a, first_head, end_head, row, count);
    return;
  }
  const auto visible = [&](int query) { return a.shape.causal ? min(s.keys, first + query + 1) : s.keys; };
  const int keys = visible(count - 1);
  Step ahead = {first_head, 0};
  const auto load_ahead = [&](int stage) {
    if (ahead.head < end_head) {
      const int64_t column = int64_t{ahead.head} * a.shape.width;
      const int64_t key_row = s.first_key + ahead.key;
      const int present = min(kKeyStep, keys - ahead.key);
      if (ahead.key == 0) {
        load_tile<kWidth, false, kTile, kThreads>(q[ahead.head - first_head], a.q.at(row, column), a.q.stride, count,
                                                  round_up(count, 16), a.shape, thread);
      }
      load_tile<kWidth, true, kTile, kThreads>(k[stage], a.k.at(key_row, column), a.k.stride, present, kTile, a.shape,
                                               thread);
      load_tile<kWidth, true, kTile, kThreads>(v[stage], a.v.at(key_row, column), a.v.stride, present, kTile, a.shape,
                                               thread);
      ahead.advance(keys);
    }
    commit_copies();
  };
  load_ahead(0);
  load_ahead(1);

  const DropoutMask mask(a.shape.dropout);
  const int own = thread / kWarp * 16;  // the warp's first query
  const int query = own + thread % kWarp / 4;
  const int warp_keys = own < count ? min(keys, visible(own + 15)) : 0;
  int stage = 0;
  for (int head = first_head; head < end_head; ++head) {
    Bf16* slab = q[head - first_head] + own * kPitch<kWidth>;
    Queries<kWidth> queries;
    queries.row = row + query;
    queries.limit[0] = visible(query);
    queries.limit[1] = visible(query + 8);
    for (int begin = 0; begin < keys; begin += kKeyStep, stage ^= 1) {
      wait_copies<1>();
      __syncthreads();
      if (begin < warp_keys) {
        attend<kWidth, kDropout>(queries, slab, k[stage], v[stage], begin, head, a.shape.scale_log2, mask);
      }
      __syncthreads();
      load_ahead(stage);
    }
    if (own < count) {
      finish<kWidth>(a, queries, slab, row, count, head, kDropout ? mask.scale() : 1.0F);
    }
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
  ForwardArguments arguments{.shape = attention_arguments(shape, q, k),
                             .out = Matrix(out),
                             .q = Matrix(q),
                             .k = Matrix(k),
                             .v = Matrix(v),
                             .log_sums = data<float>(log_sums),
                             .log_sums_stride = log_sums.stride};
  arguments.shape.vectors &= vectors_of_8(out) && vectors_of_8(q) && vectors_of_8(k) && vectors_of_8(v);
  for_width(arguments.shape.width, arguments.shape.dropout.on(), [&]<int kWidth, bool kDropout>() {
    const int64_t blocks = slots<kTile>(arguments.shape) * divide_up(shape.heads, kHeads<kWidth>);
    launch("attention", attention_kernel<kWidth, kDropout>, {static_cast<unsigned>(blocks), kThreads, 0, stream_},
           arguments);
  });
}

}  // namespace tandem
