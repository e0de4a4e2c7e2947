// The parts of attention's backward: a tile of queries against a tile of keys. Its weights are computed from q, k, v,
// dout and the forward's log_sums and lie in shared memory; gradients are products of them. See attention_backward.cu.
#pragma once

#include "backend/cuda/attention.cuh"

namespace tandem::backend::cuda {

constexpr int kTile = kBackwardTile;  // rows of a tile, queries or keys
constexpr int kBackwardThreads = kTile / 16 * kWarp;
constexpr int kWeightPitch = kTile + 8;

template <class H>
struct BackwardArguments {
  AttentionArguments shape;
  Matrix<H> dq, dk, dv, dout, out, q, k, v;
  const float* log_sums;
  int64_t log_sums_stride;
  float log2_kept;  // log2 of dropout's scale
  float d_scale;    // factor of D: the shape's scale / dropout's scale
};

template <int kWidth>
constexpr int kTileBytes = kTile* kRowBytes<kWidth>;

template <class H, int kWidth>
struct Shared {
  alignas(128) uint8_t q[kTileBytes<kWidth>];
  uint8_t dout[kTileBytes<kWidth>], k[kTileBytes<kWidth>], v[kTileBytes<kWidth>];
  H weights[kTile * kWeightPitch], dscores[kTile * kWeightPitch];  // [queries, keys in their tile's order]
};

// A tile of queries against a tile of keys, as one warp sees it. Rows of tiles in shared memory count from `base`.
struct Pair {
  int head, base;
  int warp, warps;           // index and number, among those that work on this head
  int first_row;             // packed row of the first query
  int first_query, queries;  // position in the sentence, rows of the tile
  int first_key, keys;       // the same for the keys
  bool causal;

  // Keys of the tile that the queries before `end` see; not positive if there are none.
  __device__ int visible(int end) const { return causal ? min(keys, first_query + end - first_key) : keys; }
  // The first query, in multiples of 16, that sees the key at `key` of the tile, a multiple of 32.
  __device__ int first_seeing(int key) const { return causal ? max(0, first_key + key - first_query) : 0; }
  __device__ unsigned thread() const { return warp * kWarp + threadIdx.x % kWarp; }  // index among those warps' threads
};

// A value for the queries g and g + 8 of a warp's 16.
struct Two {
  float r[2];
};

// Loads two adjacent tiles from a head's columns of two matrices, from row `row` on; they are zeros from tile row
// `count` on and not written from tile row `filled` on. If two warps work on a head, it loads half of each tile.
template <bool kKeys, bool kVectors, int kWidth, class H>
__device__ void load(const uint8_t* tiles, const Matrix<H>& first, const Matrix<H>& second, int row, int count,
                     int filled, const BackwardArguments<H>& a, const Pair& pair) {
  const auto by = [&]<int kTeam, int kRows>() {
    const OwnPiece<kWidth, kTeam> own(pair.thread());
    const int column = own.piece * 8, columns = a.shape.width - column;
    uint32_t to = shared_of(tiles) + place<kWidth>(pair.base + (kKeys ? permuted(own.row) : own.row), own.piece);
    keep(to);  // recomputed for each copy, addresses would be a fifth of a short sentence's instructions
    const auto copy = [&](uint32_t further, const Matrix<H>& matrix) {
      const H* from = matrix.at(row + own.row, pair.head * a.shape.width + column);
      keep(from);
      copy_rows<kWidth, kKeys, kVectors, kRows, own.kStep>(to, from, matrix.stride, count - own.row, columns,
                                                           filled - own.row, further);
    };
    copy(0, first);
    copy(kTileBytes<kWidth>, second);
  };
  pair.warps == kBackwardThreads / kWarp ? by.template operator()<kBackwardThreads, kTile>()
                                         : by.template operator()<kBackwardThreads / 2, kTile / 2>();
}

template <bool kVectors, class H, int kWidth>
__device__ void load_queries(const Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Pair& pair) {
  load<false, kVectors, kWidth>(shared.q, a.q, a.dout, pair.first_row, pair.queries, round_up(pair.queries, 16), a,
                                pair);
}

// `row` is the packed row of the tile's first key.
template <bool kVectors, class H, int kWidth>
__device__ void load_keys(const Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Pair& pair, int row) {
  load<true, kVectors, kWidth>(shared.k, a.k, a.v, row, pair.keys, round_up(pair.keys, kKeyStep), a, pair);
}

// The log sums in base 2, less the logarithm of dropout's scale, so that the weights come out multiplied by it.
template <class H>
__device__ Two load_log_sums(const BackwardArguments<H>& a, const Pair& pair) {
  Two result = {};
  for (int r = 0; r < 2; ++r) {
    const int query = 16 * pair.warp + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * r;
    if (query < pair.queries) {
      result.r[r] =
          fmaf(a.log_sums[pair.head * a.log_sums_stride + pair.first_row + query], 1.4426950408889634F, -a.log2_kept);
    }
  }
  return result;
}

// D of the warp's queries as the sum of dout out, two lanes per row; dout is read from its tile.
template <bool kVectors, class H, int kWidth>
__device__ Two sum_of_products(const Shared<H, kWidth>& shared, const BackwardArguments<H>& a, const Pair& pair) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const int query = 16 * pair.warp + lane / 2;
  float sum = 0;
  if (query < pair.queries) {
    const H* row = a.out.at(pair.first_row + query, pair.head * a.shape.width);
    for (int column = lane % 2 * 8; column < a.shape.width; column += 16) {
      float out[8], dout[8];
      load8<kVectors>(out, row, column, a.shape.width);
      const uint8_t* piece = shared.dout + place<kWidth>(pair.base + query, column / 8);
      load8<true>(dout, reinterpret_cast<const H*>(piece), 0, 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum = fmaf(out[i], dout[i], sum);
      }
    }
  }
  sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
  const int g = lane / 4;
  return {{__shfl_sync(0xFFFFFFFF, sum, 2 * g), __shfl_sync(0xFFFFFFFF, sum, 2 * (g + 8))}};
}

// A warp's 16 queries and 32 keys: p times dropout's scale, and dp before that scale, 0 where it is dropped.
struct Weights {
  float p[4][4] = {}, dp[4][4] = {};
};

// Computes the weights of 32 keys from `key` of the tile on. Writes p m to its tile and adds p dp, with both factors of
// dropout, to sums.
template <class H, int kWidth, bool kDropout>
__device__ void weigh_step(Weights& w, Two& sums, Shared<H, kWidth>& shared, const Two& log_sums, int key,
                           const BackwardArguments<H>& a, const Pair& pair, const DropoutMask& mask) {
  const uint32_t rows = shared_of(shared.q) + (pair.base + 16 * pair.warp) * kRowBytes<kWidth> + rows_of_lane<kWidth>();
  const uint32_t columns = shared_of(shared.k) + (pair.base + key) * kRowBytes<kWidth> + keys_of_lane<kWidth>();
  multiply_by_keys<H, kWidth>(w.p, rows, columns);
  multiply_by_keys<H, kWidth>(w.dp, rows, columns, kTileBytes<kWidth>);  // dout, v
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const int own = key + lane % 4 * 8;  // the lane's first key
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = 16 * pair.warp + lane / 4 + 8 * r;
    const int limit = query < pair.queries ? pair.visible(query + 1) - own : 0;
    Philox words = {};
    if constexpr (kDropout) {
      words = mask.lanes(pair.first_row + query, (pair.first_key + own) / 8, pair.head);
    }
    H* to = shared.weights + (pair.base + query) * kWeightPitch + key + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& p = w.p[j][2 * r + e];
        float& dp = w.dp[j][2 * r + e];
        const float power = exp2_fast(fmaf(p, a.shape.scale_log2, -log_sums.r[r]));
        p = 2 * j + e < limit ? power : 0.0F;
        if constexpr (kDropout) {
          dp = (e == 0 ? mask.keeps_low(words[j]) : mask.keeps_high(words[j])) ? dp : 0.0F;
        }
        sums.r[r] = fmaf(p, dp, sums.r[r]);
      }
      const uint32_t both = pack<H>(w.p[j][2 * r], w.p[j][2 * r + 1]);
      *reinterpret_cast<uint32_t*>(to + 8 * j) = kDropout ? keep_pair(both, words[j], mask.limit()) : both;
    }
  }
}

// Writes ds = p (dp - D) scale to its tile; d is D.
template <class H>
__device__ void write_dscores(H* dscores, const Weights& w, const Two& d, int key, const BackwardArguments<H>& a,
                              const Pair& pair) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    H* to = dscores + (pair.base + 16 * pair.warp + lane / 4 + 8 * r) * kWeightPitch + key + lane % 4 * 2;
    const float scaled = d.r[r] * a.d_scale;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float(&p)[4] = w.p[j];
      const float(&dp)[4] = w.dp[j];
      *reinterpret_cast<uint32_t*>(to + 8 * j) = pack<H>(p[2 * r] * fmaf(dp[2 * r], a.shape.scale, -scaled),
                                                         p[2 * r + 1] * fmaf(dp[2 * r + 1], a.shape.scale, -scaled));
    }
  }
}

// Computes weights and dscores of the warp's 16 queries for all the keys that there are, at most 64.
template <class H, int kWidth, bool kDropout>
__device__ void weigh_all(Shared<H, kWidth>& shared, const Two& log_sums, const BackwardArguments<H>& a,
                          const Pair& pair, const DropoutMask& mask) {
  Weights first;
  Two sums = {};
  const auto d = [&] { return Two{{sum_of_quad(sums.r[0]), sum_of_quad(sums.r[1])}}; };
  weigh_step<H, kWidth, kDropout>(first, sums, shared, log_sums, 0, a, pair, mask);
  if (pair.visible(16 * pair.warp + 16) > kKeyStep) {
    Weights second;
    weigh_step<H, kWidth, kDropout>(second, sums, shared, log_sums, kKeyStep, a, pair, mask);
    write_dscores(shared.dscores, second, d(), kKeyStep, a, pair);
  }
  write_dscores(shared.dscores, first, d(), 0, a, pair);
}

// The same for 32 keys from `key` of the tile on, with D known.
template <class H, int kWidth, bool kDropout>
__device__ void weigh_part(Shared<H, kWidth>& shared, const Two& log_sums, const Two& d, int key,
                           const BackwardArguments<H>& a, const Pair& pair, const DropoutMask& mask) {
  Weights w;
  Two unused = {};
  weigh_step<H, kWidth, kDropout>(w, unused, shared, log_sums, key, a, pair, mask);
  write_dscores(shared.dscores, w, d, key, a, pair);
}

// sums [16, kWidth] += weights rows, over the inner indices begin .. end - 1; both pointers are to index 0. The weights
// are [16, end] or, if transposed, [end, 16].
template <int kWidth, bool kTransposed, class H>
__device__ void multiply_weights(float (&sums)[kWidth / 8][4], const H* weights, const uint8_t* rows, int begin,
                                 int end) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const uint32_t right = shared_of(rows) + rows_of_lane<kWidth>();
#pragma unroll 1
  for (int i = begin; i < end; i += 16) {
    const int row = kTransposed ? i + lane % 8 + lane / 16 * 8 : lane % 16;
    const int col = kTransposed ? lane / 8 % 2 * 8 : i + lane / 16 * 8;
    const uint32_t left = shared_of(weights + row * kWeightPitch + col);
    multiply_by_rows<H, kWidth>(sums, kTransposed ? load_fragment_transposed(left) : load_fragment(left),
                                right + i * kRowBytes<kWidth>);
  }
}

// sums += weights' rows: what the tile's queries add to the gradient of its 16 keys from `key` on.
template <int kWidth, class H>
__device__ void add_key_gradient(float (&sums)[kWidth / 8][4], const H* weights, const uint8_t* rows, int key,
                                 const Pair& pair) {
  multiply_weights<kWidth, true>(sums, weights + pair.base * kWeightPitch + key, rows + pair.base * kRowBytes<kWidth>,
                                 pair.first_seeing(key / kKeyStep * kKeyStep), round_up(pair.queries, 16));
}

}  // namespace tandem::backend::cuda
