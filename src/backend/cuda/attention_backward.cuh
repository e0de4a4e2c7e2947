// The parts of attention's backward: 16 queries of a warp against 32 keys in registers, and the weights of a tile in
// shared memory, from where they are read transposed. See attention_backward.cu.
#pragma once

#include "backend/cuda/attention.cuh"

namespace tandem::cuda {

constexpr int kTile = 64;  // queries of a block, and the most queries and keys whose weights fit in shared memory
constexpr int kThreads = 2 * kWarp;
constexpr int kWeightPitch = kTile + 8;

struct BackwardArguments {
  AttentionArguments shape;
  Matrix dq, dk, dv, dout, out, q, k, v;
  const float* log_sums;
  int64_t log_sums_stride;
};

struct Shared {
  Bf16 weights[kTile * kWeightPitch], dscores[kTile * kWeightPitch];  // [queries, keys]
};

// One head of a sentence.
struct Part {
  int head, column;          // the head's first column
  int first_query, queries;  // packed row of the first, number
  int first_key, keys;
  bool causal;

  // Keys that the queries before `end` see.
  __device__ int visible(int end) const { return causal ? min(keys, end) : keys; }
};

// 16 queries of a warp; [0] and [1]: rows g and g + 8 of the fragment. Past the last query its row is read again.
template <int kWidth>
struct Queries {
  Row<kWidth> q[2], dout[2];
  float log_sums[2];  // in base 2
  int first;          // position of the first query

  template <bool kWhole>
  __device__ void load(int first_position, const BackwardArguments& a, const Part& part) {
    first = first_position;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = part.first_query + min(position(r), part.queries - 1);
      q[r].template load<kWhole, 2>(a.q.at(row, part.column), a.shape.width);
      dout[r].template load<kWhole, 2>(a.dout.at(row, part.column), a.shape.width);
      log_sums[r] = a.log_sums[part.head * a.log_sums_stride + row] * 1.4426950408889634F;
    }
  }
  __device__ int position(int r) const { return first + static_cast<int>(threadIdx.x) % kWarp / 4 + 8 * r; }
};

// A value for the queries g and g + 8 of a warp's 16.
struct Two {
  float r[2] = {};
};

// D of the queries as the sum of dout out.
template <int kWidth, bool kWhole>
__device__ Two sum_of_products(const Queries<kWidth>& queries, const BackwardArguments& a, const Part& part) {
  Two result;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = part.first_query + min(queries.position(r), part.queries - 1);
    Row<kWidth> out;
    out.template load<kWhole>(a.out.at(row, part.column), a.shape.width);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 x = unpack(out.words[i]);
      const float2 y = unpack(queries.dout[r].words[i]);
      sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
    }
    result.r[r] = sum_of_quad(sum);
  }
  return result;
}

// p and dp of 16 queries and 32 keys; bf16 pairs of keys, [r][j]: block j of row g + 8 r.
struct Weights {
  float p[4][4] = {}, dp[4][4] = {};
};
struct Pairs {
  uint32_t words[2][4];

  // To rows of a tile in shared memory, `to` being the first of the 16 queries and of the 32 keys.
  __device__ void store(Bf16* to) const {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      *reinterpret_cast<uint4*>(to + (lane / 4 + 8 * r) * kWeightPitch + lane % 4 * 8) =
          uint4{words[r][0], words[r][1], words[r][2], words[r][3]};
    }
  }
};

// What depends on the value is computed after this: addresses are cheaper than registers that hold them through a loop.
__device__ inline void compute_here(int& value) { asm volatile("" : "+r"(value)); }

// p, dp and the weights p m of the 32 keys from `key` on.
template <int kWidth, bool kDropout, bool kWhole>
__device__ Pairs weigh(Weights& w, const Queries<kWidth>& queries, int key, const BackwardArguments& a,
                       const Part& part, const DropoutMask& mask) {
  compute_here(key);
  const int own = key + static_cast<int>(threadIdx.x) % 4 * 8;  // the lane's first key
  Row<kWidth> keys[4], values[4];
  const auto load = [&](Row<kWidth>& row, const Matrix& matrix, int j) {
    const int position = min(key + key_of_lane(j), part.keys - 1);
    row.template load<kWhole>(matrix.at(part.first_key + position, part.column), a.shape.width);
  };
  Philox words[2] = {};
  if constexpr (kDropout) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      words[r] = mask.lanes(part.first_query + queries.position(r), own / 8, part.head);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    load(keys[j], a.k, j);
    multiply_rows(w.p[j], queries.q, keys[j]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    load(values[j], a.v, j);
    multiply_rows(w.dp[j], queries.dout, values[j]);
  }
  Pairs pairs;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = queries.position(r);
    const int limit = query < part.queries ? part.visible(query + 1) - own : 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float kept[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = w.p[j][2 * r + e];
        float& dp = w.dp[j][2 * r + e];
        const float power = exp2_fast(fmaf(p, a.shape.scale_log2, -queries.log_sums[r]));
        p = 2 * j + e < limit ? power : 0.0F;
        kept[e] = p;
        if constexpr (kDropout) {
          const bool keeps = e == 0 ? mask.keeps_low(words[r][j]) : mask.keeps_high(words[r][j]);
          const float factor = keeps ? mask.scale() : 0.0F;
          kept[e] *= factor;
          dp *= factor;
        }
      }
      pairs.words[r][j] = pack(kept[0], kept[1]);
    }
  }
  return pairs;
}

// D of the queries as the sum of p dp, where these are all the keys.
__device__ inline Two sum_of_weighted(const Weights& w) {
  Two sums;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float& sum = sums.r[i / 2 % 2];
    sum = fmaf(w.p[i / 4][i % 4], w.dp[i / 4][i % 4], sum);
  }
  return {{sum_of_quad(sums.r[0]), sum_of_quad(sums.r[1])}};
}

// ds = p (dp - D) scale
__device__ inline Pairs dscores(const Weights& w, const Two& d, float scale) {
  Pairs pairs;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      pairs.words[r][j] = pack(w.p[j][2 * r] * scale * (w.dp[j][2 * r] - d.r[r]),
                               w.p[j][2 * r + 1] * scale * (w.dp[j][2 * r + 1] - d.r[r]));
    }
  }
  return pairs;
}

// dq [16, kWidth] += ds k, for the 32 keys from `key` on.
template <int kWidth, bool kWhole>
__device__ void add_query_gradient(float (&sums)[kWidth / 8][4], const Pairs& ds, int key, const BackwardArguments& a,
                                   const Part& part) {
  compute_here(key);
  const int own = key + static_cast<int>(threadIdx.x) % 4 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Columns<kWidth> rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = part.first_key + min(own + 4 * half + i, part.keys - 1);
      rows[i].template load<kWhole>(a.k.at(row, part.column), a.shape.width);
    }
    const int j = 2 * half;
    const Fragment left = {{ds.words[0][j], ds.words[1][j], ds.words[0][j + 1], ds.words[1][j + 1]}};
    multiply_columns(sums, left, rows);
  }
}

// Keys' gradient [16, kWidth] += weights' rows, for `count` queries from `first` on. `weights` is the tile's row of
// that first query, at the first of the keys; `matrix` is dout or q.
template <int kWidth, bool kWhole>
__device__ void add_key_gradient(float (&sums)[kWidth / 8][4], const Bf16* weights, const Matrix& matrix, int first,
                                 int count, const BackwardArguments& a, const Part& part) {
  compute_here(first);
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int i = 0; i < count; i += 16) {
    Columns<kWidth> rows[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int position = first + i + lane % 4 * 2 + j % 2 + j / 2 * 8;
      const int row = part.first_query + min(position, part.queries - 1);
      rows[j].template load<kWhole>(matrix.at(row, part.column), a.shape.width);
    }
    const Fragment left =
        load_fragment_transposed(weights + (i + lane % 8 + lane / 16 * 8) * kWeightPitch + lane / 8 % 2 * 8);
    multiply_columns(sums, left, rows);
  }
}

// A warp's sums to the rows from packed row `first` on, of which there are `count`.
template <int kWidth, bool kWhole>
__device__ void store_gradient(const Matrix& matrix, const float (&sums)[kWidth / 8][4], int first, int count,
                               const BackwardArguments& a, const Part& part) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = static_cast<int>(threadIdx.x) % kWarp / 4 + 8 * r;
    if (row < count) {
      store_sums<kWidth, kWhole>(matrix.at(first + row, part.column), sums, r, 1, a.shape.width);
    }
  }
}

}  // namespace tandem::cuda
