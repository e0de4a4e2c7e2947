// Tiles of 128 whole rows, multiplied as in fused_product.cu: two groups of four warps multiply, the four warps of a
// third one finish what they have multiplied while they are at the next tile. The blocks of a cluster lie side by side,
// each with 256 columns, and share x's tiles: each brings a part. Of a row's mean and squares each block sends its part
// to all blocks, so that all have the same bits.
//
// Finishing takes longer than a product of depth 512. What it waits for is shared memory, which the products keep busy,
// and instructions, unless its loops are short. No faster: eight warps that finish (products of 128 columns at a time,
// so that there are registers for them, read the first factor twice), the first group finishing its own rows, or both
// theirs. Clusters of four that share w's tiles too do as much in a round, but only 30 of them fit.
#include <algorithm>

#include "backend/cuda/floats.cuh"
#include "backend/cuda/fused_epilogue.cuh"
#include "backend/cuda/product_norm.h"

namespace tandem::cuda {

namespace {

constexpr int kUnits = kTileCols / 8;

// What is the same for all rows, of the block's columns.
struct Parameters {
  float4 bias[kUnits / 2][4];  // for lane t % 4: columns 2 t and 2 t + 1 of two units
  float4 norm[4][kUnits];      // gamma and beta of columns 2 k and 2 k + 1 of each unit
  uint4 columns[kUnits];       // of the random numbers
  alignas(16) uint8_t random[sizeof(PhiloxRows)];
};

// Where the blocks of a cluster meet over a warp's rows: from each (mean, squares) of each row. A warp uses two such
// places in turn: what comes for its next rows does not overwrite what other lanes still read.
constexpr uint32_t kSentBytes = kChunkRows * 2 * sizeof(float);
constexpr int kMeetings = 2 * (kGroups + 1) * kGroupWarps;

template <int kCluster>
constexpr size_t kSharedBytes = kPatternBytes + kStages* kStageBytes + kGroups* kSlotBytes +
                                sizeof(Parameters) + kMeetings* kCluster* kSentBytes;

struct Shape {
  int tiles;  // of kTileRows rows
  int steps;  // of kDepth
};

struct Arguments {
  Bf16* sum;
  Bf16* normed;
  float* statistics;
  const Bf16* residual;
  const Bf16* bias;  // or null
  const float *gamma, *beta;
  int64_t sum_stride, normed_stride, statistics_stride, residual_stride;
  int rows;
  float share;  // 1 / columns
  DropoutArguments dropout;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A warp finishes 16 rows: lane l has rows l / 8 + 0, 4, 8, 12 and, of each part of 64 columns, the eight of one unit.
constexpr int kRows = 4;
constexpr int kParts = kTileCols / kChunkCols, kPartUnits = kUnits / kParts;

using Stages = Ring<kStages, kStageBytes>;
using Results = Ring<kGroups, kSlotBytes>;  // one slot for each group

struct Maps {
  const CUtensorMap &x, &w, &residual;
};

// Brings the stages of all tiles, one after the other: the work of one warp.
template <int kCluster>
struct Bringer {
  static constexpr int kPartRows = kTileRows / kCluster;  // of x: this block's part for all blocks of the cluster
  static constexpr uint16_t kAll = (1 << kCluster) - 1;

  const Maps& maps;
  const Shape& shape;
  bool on;  // in this warp
  Stages stages;
  int tile, rank, tiles_at_once, step = 0;

  // The next one, where there is one, as soon as all groups have done with what it replaces. With a tile's first ones
  // the residual comes to the L2 cache.
  __device__ void bring() {
    if (!on || tile >= shape.tiles) {
      return;
    }
    stages.wait_empty();
    arrive_and_expect(stages.full_now(), kStageBytes);
    load_box_to(stages.at() + rank * kPartRows * 128, maps.x, tile * kTileRows + rank * kPartRows, step * kDepth,
                stages.full_now(), kAll);
    load_box(stages.at() + kBytesA, maps.w, rank * kTileCols, step * kDepth, stages.full_now());
    if (step < kParts) {
      prefetch_box(maps.residual, tile * kTileRows, rank * kTileCols + step * kChunkCols);
    }
    stages.advance();
    if (++step == shape.steps) {
      step = 0;
      tile += tiles_at_once;
    }
  }
};

// The warp has done with a stage.
template <int kCluster>
__device__ void release_stage(uint32_t barrier, int lane) {
  if (lane < kCluster) {
    arrive_at(barrier, lane);
  }
}

// sums += the group's 64 rows of the tile's product.
template <int kCluster>
__device__ void multiply_tile(float (&sums)[128], Stages& stages, Bringer<kCluster>& bringer, int steps, int group,
                              int lane) {
  constexpr uint32_t kStep = 32;  // bytes, for 16 of the inner dimension
  uint32_t used = 0;              // barrier of the stage before
  for (int step = 0; step < steps; ++step) {
    stages.wait_full();
    const uint64_t x = tile_descriptor(stages.at() + group * (kBytesA / kGroups), 16);
    const uint64_t w = tile_descriptor(stages.at() + kBytesA, 16);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      multiply_64x256<false>(sums, x + descriptor_step(i * kStep), w + descriptor_step(i * kStep), true);
    }
    commit_products();
    wait_products<1>();
    if (step > 0) {
      release_stage<kCluster>(used, lane);
      bringer.bring();
    }
    used = stages.empty_now();
    stages.advance();
  }
  wait_products<0>();
  settle(sums);
  release_stage<kCluster>(used, lane);
}

__device__ uint4 load_shared(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ void store_shared(uint32_t at, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Of some numbers.
struct Moments {
  float mean, squares;  // squares: of the distances from the mean, added up
};
// Of two sets of `count` numbers; the same bits whichever comes first.
__device__ Moments together(const Moments& a, const Moments& b, float count) {
  const float distance = a.mean - b.mean;
  return {0.5F * (a.mean + b.mean), fmaf(distance * distance, 0.5F * count, a.squares + b.squares)};
}

// Lanes 8 q to 8 q + 7 have rows q + 0, 4, 8, 12 in each block.
template <int kCluster>
struct Meeting {
  uint32_t at, barrier, parity;

  // Of eight lanes with the same rows and moments, each sends two rows' to one block.
  __device__ void send(const Moments (&own)[kRows], uint32_t rank, int lane) const {
    const int to = lane % 8 / 2;
    const bool second = lane % 2 != 0;
    arrive_and_expect(barrier, kCluster * kSentBytes);
    if (to < kCluster) {
      send_to(at + rank * kSentBytes + (lane / 8 * 2 + lane % 2) * sizeof(float4), to,
              {second ? own[2].mean : own[0].mean, second ? own[2].squares : own[0].squares,
               second ? own[3].mean : own[1].mean, second ? own[3].squares : own[1].squares},
              barrier);
    }
  }

  // Shared memory has no cache between the blocks: a wait that were one for the cluster would empty the L1 cache.
  __device__ void receive(Moments (&all)[kRows], int lane) const {
    wait_barrier(barrier, parity);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Moments of[kCluster][2];
#pragma unroll
      for (int block = 0; block < kCluster; ++block) {
        const uint32_t from = at + block * kSentBytes + (lane / 8 * 2 + half) * static_cast<uint32_t>(sizeof(float4));
        const uint4 v = load_shared(from);
        of[block][0] = {__uint_as_float(v.x), __uint_as_float(v.y)};
        of[block][1] = {__uint_as_float(v.z), __uint_as_float(v.w)};
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        all[2 * half + i] = together(of[0][i], of[1][i], kTileCols);
        if constexpr (kCluster == 4) {
          all[2 * half + i] = together(all[2 * half + i], together(of[2][i], of[3][i], kTileCols), 2 * kTileCols);
        }
      }
    }
  }
};

// 16 bytes, or zeros.
__device__ uint4 load_16(const void* from, bool where) {
  return where ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}

// Where `where` holds, without a branch around it.
__device__ void store_8(float* to, float x, float y, bool where) {
  asm volatile(
      "{\n"
      ".reg .pred where;\n"
      "setp.ne.b32 where, %3, 0;\n"
      "@where st.global.v2.f32 [%0], {%1, %2};\n"
      "}" ::"l"(to),
      "f"(x), "f"(y), "r"(static_cast<int>(where))
      : "memory");
}

__device__ float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float high_of(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000); }

__device__ int col_of(int rank, int lane) { return rank * kTileCols + lane % 8 * 8; }  // the lane's first one
using Units = uint4[kRows];                                                            // that a lane has of one part

// Of the rows from first_row on.
__device__ void fetch_residual(Units& residual, const Arguments& a, int first_row, int col, int lane) {
  const int row = first_row + lane / 8;
  const Bf16* from = a.residual + row * a.residual_stride + col;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    residual[i] = load_16(from, row + 4 * i < a.rows);
    from += 4 * a.residual_stride;
  }
}

// What a warp makes of its rows. The sum takes the branch's place in shared memory until the row's moments are known.
template <int kCluster>
struct Finisher {
  const Arguments& a;
  const Parameters& parameters;
  PhiloxRows random;
  int rank, lane;

  __device__ Finisher(const Arguments& arguments, const Parameters& of_columns, int own_rank, int own_lane)
      : a(arguments),
        parameters(of_columns),
        random(*reinterpret_cast<const PhiloxRows*>(of_columns.random)),
        rank(own_rank),
        lane(own_lane) {}

  __device__ int col() const { return col_of(rank, lane); }
  // Unit lane % 8 of row r lies at place lane % 8 ^ r % 8 of its row of 128 bytes.
  __device__ uint32_t place(uint32_t chunk, int part, int i) const {
    const int r = lane / 8 + 4 * i;
    return chunk + part * kChunkBytes + r * 128 + ((lane % 8 ^ r % 8) << 4);
  }

  // The dropped elements become 0; the others are scaled later.
  __device__ void drop(Units& branch, int row, int part) const {
    const uint4 column = parameters.columns[part * kPartUnits + lane % 8];
    uint32_t lanes[kRows][4];
    random.lanes(lanes, row, {column.x, column.y, column.z, column.w});
    const uint32_t below = (a.dropout.threshold - 1) * 0x10001;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      branch[i].x = quick_keep_pair(branch[i].x, lanes[i][0], below);
      branch[i].y = quick_keep_pair(branch[i].y, lanes[i][1], below);
      branch[i].z = quick_keep_pair(branch[i].z, lanes[i][2], below);
      branch[i].w = quick_keep_pair(branch[i].w, lanes[i][3], below);
    }
  }

  // Rounded as memory holds it.
  __device__ uint4 sum_of(const uint4& residual, const uint4& branch) const {
    const float scale = a.dropout.scale;
    const auto sum = [scale](uint32_t x, uint32_t y) {
      return pack(fmaf(low_of(y), scale, low_of(x)), fmaf(high_of(y), scale, high_of(x)));
    };
    return {sum(residual.x, branch.x), sum(residual.y, branch.y), sum(residual.z, branch.z), sum(residual.w, branch.w)};
  }

  // sum = residual + dropout(branch), and the moments of what a lane has of each row. Distances are from the first
  // element, whose own distance from the mean is among the squares: so no more than five bits are lost.
  // residual: of this chunk's first part, then of that of the one that begins at next_row.
  __device__ void add_branch(Moments (&own)[kRows], Units& residual, uint32_t chunk, int first_row,
                             int next_row) const {
    const int row = first_row + lane / 8;
    Bf16* to = a.sum + row * a.sum_stride + col();
    float first[kRows] = {}, totals[kRows] = {}, squares[kRows] = {};
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      Units v;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[i] = load_shared(place(chunk, part, i));
      }
      if (a.dropout.threshold > 0) {
        drop(v, row, part);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[i] = sum_of(residual[i], v[i]);
      }
      const bool last = part == kParts - 1;
      fetch_residual(residual, a, last ? next_row : first_row, col() + (last ? 0 : part + 1) * kChunkCols, lane);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        store_16(to + 4 * i * a.sum_stride, v[i], row + 4 * i < a.rows);
        store_shared(place(chunk, part, i), v[i]);
        const uint32_t pairs[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        first[i] = part == 0 ? low_of(pairs[0]) : first[i];
        float low_total = 0, high_total = 0, low_squares = 0, high_squares = 0;
#pragma unroll
        for (const uint32_t pair : pairs) {
          const float low = low_of(pair) - first[i], high = high_of(pair) - first[i];
          low_total += low;
          high_total += high;
          low_squares = fmaf(low, low, low_squares);
          high_squares = fmaf(high, high, high_squares);
        }
        totals[i] += low_total + high_total;
        squares[i] += low_squares + high_squares;
      }
      to += kChunkCols;
    }
    constexpr float kCount = 8 * kParts;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float mean = totals[i] * (1 / kCount);
      own[i] = {first[i] + mean, fmaxf(fmaf(-mean, totals[i], squares[i]), 0.0F)};
    }
  }

  // Of the row's 256 columns, in each of the eight lanes that have it.
  __device__ static void gather(Moments (&own)[kRows]) {
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
#pragma unroll
      for (Moments& m : own) {
        const Moments other = {__shfl_xor_sync(0xFFFFFFFF, m.mean, distance),
                               __shfl_xor_sync(0xFFFFFFFF, m.squares, distance)};
        m = together(m, other, 8 * kParts * distance);
      }
    }
  }

  // Statistics are written by one block.
  __device__ void normalise(Units (&v)[kParts], const Moments (&all)[kRows], int first_row) const {
    const int row = first_row + lane / 8;
    float rstd[kRows], offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rstd[i] = rsqrtf(all[i].squares * a.share + 1e-6F);
      offset[i] = -all[i].mean * rstd[i];
      store_8(a.statistics + (row + 4 * i) * a.statistics_stride, all[i].mean, rstd[i],
              rank == 0 && lane % 8 == i && row + 4 * i < a.rows);
    }
    Bf16* const to = a.normed + row * a.normed_stride + col();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float4 of_columns[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        of_columns[k] = parameters.norm[k][part * kPartUnits + lane % 8];
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const auto norm = [&](uint32_t pair, const float4& two) {
          return pack(fmaf(fmaf(low_of(pair), rstd[i], offset[i]), two.x, two.y),
                      fmaf(fmaf(high_of(pair), rstd[i], offset[i]), two.z, two.w));
        };
        uint4& u = v[part][i];
        u = {norm(u.x, of_columns[0]), norm(u.y, of_columns[1]), norm(u.z, of_columns[2]), norm(u.w, of_columns[3])};
        store_16(to + part * kChunkCols + 4 * i * a.normed_stride, u, row + 4 * i < a.rows);
      }
    }
  }

  // The chunk in shared memory, rows from `row` on. empty: a barrier for when its memory may be written again, or 0.
  __device__ void finish(Units& residual, uint32_t chunk, int row, const Meeting<kCluster>& meeting, uint32_t empty,
                         int next_row) const {
    Moments moments[kRows];
    add_branch(moments, residual, chunk, row, next_row);
    gather(moments);
    meeting.send(moments, rank, lane);
    Units v[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[part][i] = load_shared(place(chunk, part, i));
      }
    }
    __syncwarp();
    if (empty != 0 && lane == 0) {
      arrive(empty);
    }
    meeting.receive(moments, lane);
    normalise(v, moments, row);
  }
};

// sums + bias, for Writer::write.
__device__ void add_bias(float (&sums)[128], const float4 (*bias)[4], int thread) {
#pragma unroll
  for (int i = 0; i < kUnits / 2; ++i) {
    const float4 two = bias[i][thread % 4];  // units' columns
    float* const s = sums + 8 * i;
    s[0] += two.x, s[1] += two.y, s[2] += two.x, s[3] += two.y;
    s[4] += two.z, s[5] += two.w, s[6] += two.z, s[7] += two.w;
  }
}

template <class Fetch, class Finish>
struct OwnRows {
  const Fetch& fetch;
  const Finish& finish;
};

// All tiles of the block. The last one has no next one behind which it could be finished: each warp does its own rows.
template <int kCluster, class Own>
__device__ void multiply_tiles(Stages stages, Results results, Bringer<kCluster> bringer, const float4 (*bias)[4],
                               const Shape& shape, const Writer& writer, const Own& own) {
  results.slot = writer.group;
  const int lane = writer.thread % kWarp;
  int tile = bringer.tile;
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) {
    bringer.bring();
  }
  while (tile < shape.tiles) {
    float sums[128] = {};  // so that the ones before are not kept
    multiply_tile<kCluster>(sums, stages, bringer, shape.steps, writer.group, lane);
    const bool last = tile + bringer.tiles_at_once >= shape.tiles;
    Units residual;
    if (last) {
      own.fetch(residual, tile);
    }
    results.wait_empty();
    if (bias != nullptr) {
      add_bias(sums, bias, writer.thread);
    }
    writer.write(
        results.at(), sums, [](int) { return 0; }, [](int, float a, float b) { return pack(a, b); });
    __syncwarp();
    if (!last && lane == 0) {
      arrive(results.full_now());
    }
    bringer.bring();
    if (last) {
      own.finish(residual, tile, results.at());
    }
    results.parity ^= 1;
    tile += bringer.tiles_at_once;
  }
}

// In all threads.
__device__ void fetch_parameters(Parameters& to, const Arguments& a, int rank) {
  const int thread = threadIdx.x;
  if (thread < kTileCols) {
    const int col = rank * kTileCols + thread, unit = thread / 8, k = thread % 8 / 2, second = thread % 2;
    float2* const norm = reinterpret_cast<float2*>(&to.norm[k][unit]);
    norm[second] = {a.gamma[col], a.beta[col]};
    float* const bias = reinterpret_cast<float*>(&to.bias[unit / 2][k]);
    bias[unit % 2 * 2 + second] = a.bias != nullptr ? __bfloat162float(a.bias[col]) : 0.0F;
  } else if (thread < kTileCols + kUnits) {
    const PhiloxRows random(a.dropout);
    const auto column = random.column(rank * kUnits + thread - kTileCols);
    to.columns[thread - kTileCols] = {column.words[0], column.words[1], column.words[2], column.words[3]};
    if (thread == kTileCols) {
      *reinterpret_cast<PhiloxRows*>(to.random) = random;
    }
  }
}

#endif

template <int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    product_norm_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap residual, const __grid_constant__ Arguments a,
                        const Shape shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ uint64_t barriers[2 * (kStages + kGroups) + kMeetings];
  extern __shared__ uint8_t shared[];
  uint8_t* const tiles = shared + (kPatternBytes - shared_of(shared) % kPatternBytes) % kPatternBytes;
  uint8_t* const slots = tiles + kStages * kStageBytes;
  auto& parameters = *reinterpret_cast<Parameters*>(slots + kGroups * kSlotBytes);
  const uint32_t sent = shared_of(&parameters) + sizeof(Parameters);
  const uint32_t first = shared_of(barriers);
  const Stages stages{.slots = shared_of(tiles), .full = first, .empty = first + kStages * 8};
  Results results{
      .slots = shared_of(slots), .full = first + 2 * kStages * 8, .empty = first + (2 * kStages + kGroups) * 8};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), group = warp / kGroupWarps;
  const int rank = static_cast<int>(rank_in_cluster());
  const int cluster = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;
  if (threadIdx.x == 0) {
    stages.init_barriers(1, kCluster * kGroups * kGroupWarps);
    results.init_barriers(kGroupWarps, kGroupWarps);
    for (int i = 0; i < kMeetings; ++i) {
      init_barrier(first + (2 * (kStages + kGroups) + i) * 8, 1);
    }
    publish_barriers();
    prefetch_map(x);
    prefetch_map(w);
    prefetch_map(residual);
  }
  sync_cluster();
  if (warp == kGroupWarps) {  // w comes from memory once: each cluster asks for other steps
    for (int step = cluster; step < shape.steps; step += clusters) {
      prefetch_box(w, rank * kTileCols, step * kDepth);
    }
  }
  await_previous();
  fetch_parameters(parameters, a, rank);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % kWarp, number = warp % kGroupWarps;
  const auto row_of = [&](int tile, int of) { return tile * kTileRows + of * kGroupRows + number * kChunkRows; };
  const auto meeting = [&](int count) {
    const int place = 2 * warp + count % 2;
    return Meeting<kCluster>{.at = sent + place * kCluster * kSentBytes,
                             .barrier = first + (2 * (kStages + kGroups) + place) * 8,
                             .parity = static_cast<uint32_t>(count / 2 % 2)};
  };
  if (group < kGroups) {
    raise_registers<176>();
    const Maps maps{x, w, residual};
    // The second group is a step behind the first, so that it seldom waits for it before it brings.
    const Bringer<kCluster> bringer{.maps = maps,
                                    .shape = shape,
                                    .on = warp == kGroupWarps,
                                    .stages = stages,
                                    .tile = cluster,
                                    .rank = rank,
                                    .tiles_at_once = clusters};
    const auto fetch = [&](Units& rows, int tile) {
      fetch_residual(rows, a, row_of(tile, group), col_of(rank, lane), lane);
    };
    const auto finish = [&](Units& rows, int tile, uint32_t slot) {
      Finisher<kCluster>(a, parameters, rank, lane)
          .finish(rows, slot + number * kChunkRows * 128, row_of(tile, group), meeting(0), 0, a.rows);
    };
    multiply_tiles<kCluster>(stages, results, bringer, a.bias != nullptr ? parameters.bias : nullptr, shape,
                             {.group = group, .thread = thread},
                             OwnRows<decltype(fetch), decltype(finish)>{fetch, finish});
  } else {
    lower_registers<152>();
    const Finisher<kCluster> finisher(a, parameters, rank, lane);
    int tile = cluster;
    Units rows;  // of the residual
    fetch_residual(rows, a, row_of(tile, results.slot), col_of(rank, lane), lane);
#pragma unroll 1
    for (int count = 0; tile + clusters < shape.tiles; ++count) {
      const Results now = results;
      const int row = row_of(tile, now.slot);
      now.wait_full();
      results.advance();
      tile += results.slot == 0 ? clusters : 0;
      const int next_row = tile + clusters < shape.tiles ? row_of(tile, results.slot) : a.rows;
      finisher.finish(rows, now.at() + number * kChunkRows * 128, row, meeting(count), now.empty_now(), next_row);
    }
  }
  sync_cluster();  // no block goes while another may still write to its shared memory
#endif
}

// Clusters of four do not fill all parts of the GPU.
template <int kCluster>
int clusters_at_once(int processors) {
  check(cudaFuncSetAttribute(product_norm_kernel<kCluster>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kSharedBytes<kCluster>),
        "asking for shared memory");
  if (kCluster == 2) {
    return processors / 2;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = processors / kCluster * kCluster;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSharedBytes<kCluster>;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, product_norm_kernel<kCluster>, &config), "asking for clusters");
  return std::min(clusters, processors / kCluster);
}

template <int kCluster>
void run(const LinearResidualNorm& p, int processors, cudaStream_t stream) {
  const auto kernel = product_norm_kernel<kCluster>;
  const Shape shape{.tiles = static_cast<int>(divide_up(p.normed.rows, kTileRows)),
                    .steps = static_cast<int>(p.x.cols / kDepth)};
  const Arguments arguments{.sum = data<Bf16>(p.sum),
                            .normed = data<Bf16>(p.normed),
                            .statistics = data<float>(p.statistics),
                            .residual = data<const Bf16>(p.residual),
                            .bias = data<const Bf16>(p.bias),
                            .gamma = data<const float>(p.gamma),
                            .beta = data<const float>(p.beta),
                            .sum_stride = p.sum.stride,
                            .normed_stride = p.normed.stride,
                            .statistics_stride = p.statistics.stride,
                            .residual_stride = p.residual.stride,
                            .rows = static_cast<int>(p.normed.rows),
                            .share = 1.0F / static_cast<float>(p.normed.cols),
                            .dropout = DropoutArguments(p.dropout)};
  const int clusters = std::min(shape.tiles, clusters_at_once<kCluster>(processors));
  launch("product_norm_kernel", kernel,
         {static_cast<unsigned>(clusters * kCluster), kThreads, kSharedBytes<kCluster>, stream, kCluster},
         map_of(p.x, kTileRows / kCluster), map_of(p.w, kTileCols), map_of(p.residual, kTileRows), arguments, shape);
}

}  // namespace

// Microseconds in a chain with a pass that makes x, with dropout, and by the best of eight algorithms of cuBLASLt with
// residual_norm behind it (H200 at 700 W, sustained): 25,024 rows of 512 from 512 39 and 50, from 2048 92 and 105;
// 12,512 rows 21 and 25, 55 and 51 (a second round with half of the clusters idle); 8,000 rows 12 and 15.5, 29.5 and
// 32.7; 25,024 rows of 1024 from 1024 115 and 141, from 4096 357 and 345.
bool product_norm_possible(const LinearResidualNorm& p, int processors) {
  const DropoutArguments dropout(p.dropout);
  const bool drops = !dropout.on() || ((dropout.threshold - 1) & 0x7FFF) - 1 < 0x7F80;  // quick_keep_possible
  const bool pairs = reinterpret_cast<uintptr_t>(p.statistics.data) % 8 == 0 && p.statistics.stride % 2 == 0;
  const bool fits = p.x.dtype == DType::bf16 && p.gamma.dtype == DType::f32 && !p.sum.empty() && vectors_of_8(p.sum) &&
                    vectors_of_8(p.normed) && vectors_of_8(p.residual) && vectors_of_8(p.x) && vectors_of_8(p.w);
  const int64_t cols = p.normed.cols, depth = p.x.cols, most_depth = cols == 2 * kTileCols ? 2048 : 1024;
  if (!drops || !pairs || !fits || (cols != 2 * kTileCols && cols != 4 * kTileCols) || depth == 0 ||
      depth % kDepth != 0 || depth > most_depth || p.normed.rows >= INT32_MAX / 2 ||
      !has_body(product_norm_kernel<2>)) {
    return false;
  }
  // How full the rounds are, in percent.
  const int clusters = cols == 2 * kTileCols ? clusters_at_once<2>(processors) : clusters_at_once<4>(processors);
  const int64_t tiles = divide_up(p.normed.rows, kTileRows), rounds = divide_up(tiles, std::max(clusters, 1));
  return tiles * 100 >= rounds * clusters * (depth <= 512 && rounds > 1 ? 72 : 90) && tiles > 0 && clusters > 0;
}

void product_norm(const LinearResidualNorm& p, int processors, cudaStream_t stream) {
  const auto chosen = p.normed.cols == 2 * kTileCols ? run<2> : run<4>;
  chosen(p, processors, stream);
}

}  // namespace tandem::cuda
