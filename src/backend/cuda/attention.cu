// Attention, forward. A block of two warps computes one head of one tile of 32 queries of a sentence after another. For
// each tile it walks over the sentence's keys 32 at a time with a running maximum and sum; while it computes a step, it
// loads the next one, of this tile or the next. The kernel is bound by memory: by how much the L2 cache has to deliver,
// and by how much of it is in flight.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem::backend {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kTile = kForwardTile;
constexpr int kThreads = kTile / 16 * kWarp;
template <int kWidth>
constexpr int kBlocks = kWidth <= 64 ? 8 : 4;  // blocks per multiprocessor

template <class H>
struct ForwardArguments {
  AttentionArguments shape;
  Matrix<H> out, q, k, v;
  float* log_sums;  // may be null
  int64_t log_sums_stride;
};

template <int kWidth>
constexpr int kTileBytes = kTile* kRowBytes<kWidth>;

// A block's shared memory: two tiles of queries and two steps of keys, used in turn, and the slots of the next tiles.
template <int kWidth>
struct Shared {
  alignas(128) uint8_t q[2][kTileBytes<kWidth>];
  uint8_t k[2][kTileBytes<kWidth>], v[2][kTileBytes<kWidth>];
  Slot slots[2];
};
static_assert(kTile == kKeyStep);

// ---- arithmetic

// The state of a warp's 16 queries; [0] and [1] are rows g and g + 8 of the fragment.
template <int kWidth>
struct Queries {
  float sums[kWidth / 8][4] = {};  // weights times values
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // the weights before dropout, over this lane's keys only
  int limit[2];         // keys that the query sees
  int row;              // packed row of query g
};

// Replaces scores by 2^(scaled score - scaled maximum), adds them to the total, and rescales the earlier sums to the
// new maximum, except in the first step. `key` is the position of this lane's first key.
template <int kWidth>
__device__ void exponentiate(Queries<kWidth>& queries, float (&scores)[4][4], int key, bool first, float scale_log2) {
  float most[2], shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int limit = queries.limit[r] - key;
    most[r] = queries.most[r];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = scores[i / 2][2 * r + i % 2];
      score = i < limit ? score : -INFINITY;
      most[r] = fmaxf(most[r], score);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    most[r] = most_of_quad(most[r]);
    shift[r] = most[r] * scale_log2;
  }
  if (!first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shrink = exp2_fast(queries.most[r] * scale_log2 - shift[r]);
      queries.total[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        queries.sums[n][2 * r] *= shrink;
        queries.sums[n][2 * r + 1] *= shrink;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = scores[i / 2][2 * r + i % 2];
      score = exp2_fast(fmaf(score, scale_log2, -shift[r]));
      queries.total[r] += score;
    }
    queries.most[r] = most[r];
  }
}

// One step of keys for a warp's 16 queries. `first` is the position of the step's first key; q, k and v are this lane's
// addresses in the fragments of the queries, of 16 keys and of 16 values.
template <class H, int kWidth, bool kDropout>
__device__ void attend(Queries<kWidth>& queries, uint32_t q, uint32_t k, uint32_t v, int first, int head,
                       float scale_log2, const DropoutMask& mask) {
  const int key = first + threadIdx.x % 4 * 8;
  float weights[4][4] = {};
  multiply_by_keys<H, kWidth>(weights, q, k);
  exponentiate(queries, weights, key, first == 0, scale_log2);
  uint32_t pairs[2][4];  // rows g and g + 8
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    Philox words = {};
    if constexpr (kDropout) {
      words = mask.lanes(queries.row + 8 * r, key / 8, head);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // dropout's scale is applied at the end
      pairs[r][j] = pack<H>(weights[j][2 * r], weights[j][2 * r + 1]);
      if constexpr (kDropout) {
        pairs[r][j] = keep_pair(pairs[r][j], words[j], mask.limit());
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Fragment left = {{pairs[0][2 * half], pairs[1][2 * half], pairs[0][2 * half + 1], pairs[1][2 * half + 1]}};
    multiply_by_rows<H, kWidth>(queries.sums, left, v, 16 * half * kRowBytes<kWidth>);
  }
}

// A tile of a sentence's queries and its keys.
struct Tile {
  int row, count;       // packed row of the first query; number of queries, -1 past the last tile
  int first;            // position of the first query
  int first_key, keys;  // the sentence's
  int seen;             // keys that the last query sees; 0: these queries do not attend

  __device__ Tile(const Slot& s, bool causal)
      : row(s.first_query + s.tile * kTile),
        count(s.queries + s.keys > 0 ? min(kTile, s.queries - s.tile * kTile) : -1),
        first(s.tile * kTile),
        first_key(s.first_key),
        keys(s.keys),
        seen(s.attends != 0 ? visible(count - 1, causal) : 0) {}
  __device__ int visible(int query, bool causal) const { return causal ? min(keys, first + query + 1) : keys; }
};

// Writes a warp's rows of out and log_sums. `slab`, the memory of its queries, serves as a buffer.
template <bool kVectors, int kWidth, class H>
__device__ void finish(const ForwardArguments<H>& a, const Queries<kWidth>& queries, const uint8_t* slab,
                       const Tile& tile, int head, float kept) {
  const auto first = static_cast<int>(threadIdx.x / kWarp * 16), lane = static_cast<int>(threadIdx.x % kWarp);
  const float totals[2] = {sum_of_quad(queries.total[0]), sum_of_quad(queries.total[1])};  // both at least 1
  if (a.log_sums != nullptr && lane % 4 == 0) {
    for (int r = 0; r < 2; ++r) {
      if (first + lane / 4 + 8 * r < tile.count) {
        a.log_sums[head * a.log_sums_stride + queries.row + 8 * r] =
            queries.most[r] * a.shape.scale + log2_fast(totals[r]) * 0.6931471805599453F;
      }
    }
  }
  const float2 factors = {kept * reciprocal_fast(totals[0]), kept * reciprocal_fast(totals[1])};
  store_rows<kWidth, false, kVectors>(a.out, tile.row, head * a.shape.width, first, tile.count, slab, queries.sums,
                                      factors, a.shape.width);
}

// Grid: (heads, any number of blocks that take the slots in turn).
template <class H, int kWidth, bool kDropout, bool kVectors>
__global__ void __launch_bounds__(kThreads, kBlocks<kWidth>) attention_kernel(const ForwardArguments<H> a) {
  const int head = head_of_block(), column = head * a.shape.width;
  // Every other turn runs backwards, so that no block has the longest slot of each turn; and the heads of a slot, which
  // tend to lie on the same multiprocessor, begin at different slots.
  const unsigned start = (blockIdx.y + blockIdx.x * gridDim.y / gridDim.x) % gridDim.y;
  const auto slot_of = [&](int turn) {
    return turn * static_cast<int>(gridDim.y) + static_cast<int>(turn % 2 == 0 ? start : gridDim.y - 1 - start);
  };
  if (head == 0 && threadIdx.x < 2) {  // the plan is as old as the pass and may have left the L2 cache
    const int slot = min(slot_of(static_cast<int>(threadIdx.x)), a.shape.slot_count - 1);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.shape.slots + slot));
  }
  await_previous();
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<kWidth>*>(memory);
  const DropoutMask mask(a.shape.dropout);
  const auto warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);

  // Slots past the last one read as zeros, like empty ones.
  const auto fetch_slot = [&](int turn) {
    if (threadIdx.x < sizeof(Slot) / 16) {
      const int slot = slot_of(turn);
      const auto* from = reinterpret_cast<const uint4*>(a.shape.slots + min(slot, a.shape.slot_count - 1));
      copy_async(shared_of(shared.slots + turn % 2) + threadIdx.x * 16, from + threadIdx.x, slot < a.shape.slot_count,
                 true);
    }
  };
  const OwnPiece<kWidth, kThreads> own(threadIdx.x);
  const int columns = a.shape.width - own.piece * 8;
  const H* q_from = a.q.at(own.row, column + own.piece * 8);
  const H* k_from = a.k.at(own.row, column + own.piece * 8);
  const H* v_from = a.v.at(own.row, column + own.piece * 8);
  uint32_t q_to = shared_of(shared.q) + place<kWidth>(own.row, own.piece);
  uint32_t k_to = shared_of(shared.k) + place<kWidth>(permuted(own.row), own.piece);
  keep(q_from);
  keep(k_from);
  keep(v_from);
  keep(q_to);
  keep(k_to);
  constexpr uint32_t kSize = kTileBytes<kWidth>;
  const auto load_keys = [&](int stage, const Tile& tile, int begin) {
    const int row = tile.first_key + begin, left = tile.seen - begin - own.row;
    copy_rows<kWidth, true, kVectors, kTile, own.kStep>(k_to + stage * kSize, k_from + int64_t{row} * a.k.stride,
                                                        a.k.stride, left, columns);
    copy_rows<kWidth, true, kVectors, kTile, own.kStep>(k_to + (2 + stage) * kSize, v_from + int64_t{row} * a.v.stride,
                                                        a.v.stride, left, columns);
  };
  const auto load_first = [&](int q_stage, int stage, const Tile& tile) {
    if (tile.seen > 0) {
      copy_rows<kWidth, false, kVectors, kTile, own.kStep>(
          q_to + q_stage * kSize, q_from + int64_t{tile.row} * a.q.stride, a.q.stride, tile.count - own.row, columns);
      load_keys(stage, tile, 0);
    }
  };

  fetch_slot(0);
  commit_copies();
  fetch_slot(1);
  wait_copies<0>();
  __syncthreads();
  Tile tile(shared.slots[0], a.shape.causal);
  load_first(0, 0, tile);
  commit_copies();
  const int own_query = warp * 16, query = own_query + lane / 4;  // the warp's first, the lane's first
  uint32_t rows_at = shared_of(shared.q) + rows_of_lane<kWidth>();
  uint32_t keys_at = shared_of(shared.k) + keys_of_lane<kWidth>();
  keep(rows_at);
  keep(keys_at);
  int stage = 0;
  for (int turn = 0; tile.count >= 0; ++turn) {
    const int q_stage = turn % 2;
    const uint32_t q = rows_at + q_stage * kSize + own_query * kRowBytes<kWidth>;
    Queries<kWidth> queries;
    queries.row = tile.row + query;
    queries.limit[0] = tile.visible(query, a.shape.causal);
    queries.limit[1] = tile.visible(query + 8, a.shape.causal);
    const int warp_keys = own_query < tile.count ? min(tile.seen, tile.visible(own_query + 15, a.shape.causal)) : 0;
    Tile next = tile;
    int begin = 0;
    do {
      wait_copies<0>();
      __syncthreads();  // this step's data is there, and the previous step's memory is free
      if (begin + kKeyStep < tile.seen) {
        load_keys(stage ^ 1, tile, begin + kKeyStep);
      } else {
        next = Tile(shared.slots[(turn + 1) % 2], a.shape.causal);
        fetch_slot(turn + 2);
        load_first(q_stage ^ 1, stage ^ 1, next);
      }
      commit_copies();
      if (begin < warp_keys) {
        attend<H, kWidth, kDropout>(queries, q, keys_at + stage * kSize, rows_at + (4 + stage) * kSize, begin, head,
                                    a.shape.scale_log2, mask);
      }
      stage ^= 1;
      begin += kKeyStep;
    } while (begin < tile.seen);
    if (tile.seen == 0) {
      clear_rows<kVectors, kThreads>(a.out, tile.row, column, tile.count, a.shape.width);
      if (a.log_sums != nullptr && warp == 0 && lane < tile.count) {
        a.log_sums[head * a.log_sums_stride + tile.row + lane] = 0;
      }
    } else if (own_query < tile.count) {
      finish<kVectors>(a, queries, shared.q[q_stage] + own_query * kRowBytes<kWidth>, tile, head,
                       kDropout ? mask.scale() : 1.0F);
    }
    tile = next;
  }
}

}  // namespace

void op::Attention::run(CudaBackend& gpu) const {
  require(out.dtype == DType::bf16 && (log_sums.empty() || log_sums.dtype == DType::f32),
          "attention on a GPU computes in bf16 with f32 sums");
  if (q.size() == 0) {
    return;
  }
  const ForwardArguments<Bf16> arguments{.shape = attention_arguments(gpu, shape, kTile, q, k),
                                         .out = Matrix<Bf16>(out),
                                         .q = Matrix<Bf16>(q),
                                         .k = Matrix<Bf16>(k),
                                         .v = Matrix<Bf16>(v),
                                         .log_sums = data<float>(log_sums),
                                         .log_sums_stride = log_sums.stride};
  for_width(arguments.shape, {out, q, k, v}, [&]<int kWidth, bool kDropout, bool kVectors>() {
    const auto kernel = attention_kernel<Bf16, kWidth, kDropout, kVectors>;
    constexpr int kBytes = sizeof(Shared<kWidth>);
    const int heads = arguments.shape.heads;
    const int sharing = std::clamp(gpu.processors() * kBlocks<kWidth> / heads, 1, arguments.shape.slot_count);
    launch("attention", kernel, {{heads, sharing}, kThreads, kBytes, gpu.queue()}, arguments);
  });
}

}  // namespace tandem::backend
