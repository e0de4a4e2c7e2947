// Attention, forward. A warp computes 16 queries of a sentence, one head after the other, and walks over the sentence's
// keys 32 at a time with a running maximum and sum. Everything lies in registers, loaded from device memory in the
// order that the tensor cores want; the two warps of a block read the same keys and values, so that the second finds
// them in the cache. No shared memory and no barriers: what counts is many loads on their way.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kTile = 32;  // queries of a block
constexpr int kThreads = kTile / 16 * kWarp;
constexpr int kHeads = 2;  // of a block

struct ForwardArguments {
  AttentionArguments shape;
  Matrix out, q, k, v;
  float* log_sums;  // or null
  int64_t log_sums_stride;
};

// What a warp knows of its 16 queries; [0] and [1]: rows g and g + 8 of the fragment.
template <int kWidth>
struct Queries {
  Row<kWidth> q[2];
  float sums[kWidth / 8][4];  // of weights times values
  float most[2], total[2];    // total: of the weights before dropout, this lane's keys only
  int keys;                   // that the last query sees
  int sees;                   // row g sees as many, row g + 8 eight more, but none past `keys`
  int row;                    // packed row of query g
};

// Replaces scores by 2^(scaled score - scaled maximum), adds them to the total, and brings what was added up before to
// the new maximum. `key` is the position of this lane's first key; `first`: nothing was added up before.
template <int kWidth>
__device__ void exponentiate(Queries<kWidth>& queries, float (&scores)[4][4], int key, bool first, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int limit = min(queries.keys, queries.sees + 8 * r) - key;
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
    if (!first) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        queries.sums[n][2 * r] *= shrink;
        queries.sums[n][2 * r + 1] *= shrink;
      }
    }
  }
}

// Zeros where dropout drops; what remains is scaled at the end.
__device__ void drop(float (&weights)[4][4], const DropoutMask& mask, const Philox (&words)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      weights[j][2 * r] = mask.keeps_low(words[r][j]) ? weights[j][2 * r] : 0.0F;
      weights[j][2 * r + 1] = mask.keeps_high(words[r][j]) ? weights[j][2 * r + 1] : 0.0F;
    }
  }
}

// One step of keys for a warp's 16 queries. k and v: the head's columns of the sentence's first key; `begin`: the
// position of the step's first key. Past the last key its row is read again: the weights there are 0.
template <int kWidth, bool kDropout, bool kWhole>
__device__ void attend(Queries<kWidth>& queries, const ForwardArguments& a, const Bf16* k, const Bf16* v, int begin,
                       int head, const DropoutMask& mask) {
  const int key = begin + static_cast<int>(threadIdx.x) % 4 * 8;
  constexpr bool kEarly = kWhole && kWidth <= 64;  // there are registers for all keys and values at once
  Row<kWidth> step_keys[4];
  Columns<kWidth> values[8];
  const auto load_keys = [&](int j) {
    step_keys[j].template load<kWhole>(a.k.below(k, min(begin + key_of_lane(j), queries.keys - 1)), a.shape.width);
  };
  const auto load_values = [&](int i) {
    values[i].template load<kWhole>(a.v.below(v, min(key + i, queries.keys - 1)), a.shape.width);
  };
  if constexpr (kEarly) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      load_keys(j);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      load_values(i);
    }
  }
  Philox words[2] = {};
  if constexpr (kDropout) {
    words[0] = mask.lanes(queries.row, key / 8, head);
    words[1] = mask.lanes(queries.row + 8, key / 8, head);
    if constexpr (kEarly) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        asm volatile("" : "+r"(words[i / 4][i % 4]));  // computed here, while the loads are on their way
      }
    }
  }
  float weights[4][4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (!kEarly) {
      load_keys(j);
    }
    multiply_rows(weights[j], queries.q, step_keys[j]);
  }
  exponentiate(queries, weights, key, begin == 0, a.shape.scale_log2);
  if constexpr (kDropout) {
    drop(weights, mask, words);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (!kEarly) {
#pragma unroll
      for (int i = 4 * half; i < 4 * half + 4; ++i) {
        load_values(i);
      }
    }
    const float(&left)[4] = weights[2 * half];
    const float(&right)[4] = weights[2 * half + 1];
    const Fragment fragment = {
        {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3])}};
    multiply_columns(queries.sums, fragment, values + 4 * half);
  }
}

// Writes a warp's rows of out and log_sums, as far as they are before packed row `end`.
template <int kWidth, bool kWhole>
__device__ void finish(const ForwardArguments& a, const Queries<kWidth>& queries, int end, int head, float kept) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = sum_of_quad(queries.total[r]);
    const int row = queries.row + 8 * r;
    if (row < end) {
      if (a.log_sums != nullptr && threadIdx.x % 4 == 0) {
        a.log_sums[head * a.log_sums_stride + row] = queries.most[r] * a.shape.scale + __logf(total);
      }
      store_sums<kWidth, kWhole>(a.out.at(row, head * a.shape.width), queries.sums, r, __fdividef(kept, total),
                                 a.shape.width);
    }
  }
}

template <int kWidth, bool kDropout, bool kWhole>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 && kWhole ? 6 : 4)
    attention_kernel(const __grid_constant__ ForwardArguments a) {
  const int groups = (a.shape.heads + kHeads - 1) / kHeads;
  const int first_head = static_cast<int>(blockIdx.x % groups) * kHeads;
  const int end_head = min(a.shape.heads, first_head + kHeads);
  const Sentence s = find_sentence<kTile>(a.shape, static_cast<int>(blockIdx.x / groups));
  const int lane = threadIdx.x % kWarp;
  const int first = s.tile * kTile + static_cast<int>(threadIdx.x) / kWarp * 16;  // the warp's first query
  const int count = min(16, s.queries - first);
  if (count <= 0) {
    return;
  }
  const int row = s.first_query + first;
  if (!s.attends) {
    for (int head = first_head; head < end_head; ++head) {
      clear_rows(a.out, row, head * a.shape.width, count, a.shape, {lane, kWarp});
      if (a.log_sums != nullptr && lane < count) {
        a.log_sums[head * a.log_sums_stride + row + lane] = 0;
      }
    }
    return;
  }
  const DropoutMask mask(a.shape.dropout);
  Queries<kWidth> queries;
  queries.row = row + lane / 4;
  queries.keys = a.shape.causal ? min(s.keys, first + count) : s.keys;
  queries.sees = a.shape.causal ? first + lane / 4 + 1 : s.keys;
#pragma unroll 1
  for (int head = first_head; head < end_head; ++head) {
    const int column = head * a.shape.width;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Bf16* q = a.q.at(min(queries.row + 8 * r, a.shape.query_rows - 1), column);
      queries.q[r].template load<kWhole, 2>(q, a.shape.width);  // by words, which then stand where products want them
      queries.most[r] = -INFINITY;
      queries.total[r] = 0;
    }
#pragma unroll
    for (auto& sums : queries.sums) {
      sums[0] = sums[1] = sums[2] = sums[3] = 0;
    }
    const Bf16* k = a.k.at(s.first_key, column);
    const Bf16* v = a.v.at(s.first_key, column);
#pragma unroll 1
    for (int begin = 0; begin < queries.keys; begin += kKeyStep) {
      attend<kWidth, kDropout, kWhole>(queries, a, k, v, begin, head, mask);
    }
    finish<kWidth, kWhole>(a, queries, row + count, head, kDropout ? mask.scale() : 1.0F);
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
  const auto blocks = static_cast<unsigned>(slots<kTile>(arguments.shape) * divide_up(shape.heads, kHeads));
  for_width(arguments.shape, [&]<int kWidth, bool kDropout, bool kWhole>() {
    attention_kernel<kWidth, kDropout, kWhole><<<blocks, kThreads, 0, stream_>>>(arguments);
  });
  check_launch("attention");
}

}  // namespace tandem
