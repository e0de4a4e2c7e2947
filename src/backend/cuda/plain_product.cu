// A block has tiles of 128 columns and kRows rows of the result. Tensor cores make the transposed tile: a group of four
// warps has 64 of its columns as rows of their sums, so that the tile's rows are the side of the product that may be
// any multiple of 8, and a lane needs two elements of the bias. Another warp asks the copy engine for stages of 64 of
// the inner dimension of both factors; the result goes back by it too, from shared memory.
//
// Clusters of two or four blocks that share what they bring gain nothing: they begin a third of a microsecond later.
// Neither does w in shared memory before the kernel before has ended, over w in the L2 cache.
#include <algorithm>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/plain_product.h"

namespace tandem::cuda {

namespace {

constexpr int kGroups = 2;
constexpr int kGroupThreads = 128;
constexpr int kGroupWarps = kGroupThreads / kWarp;
constexpr int kThreads = kGroups * kGroupThreads + kWarp;
constexpr int kGroupCols = 64;
constexpr int kTileCols = kGroups * kGroupCols;
constexpr int kDepth = 64;  // of a stage: one row of the swizzle, 128 bytes
constexpr uint32_t kPatternBytes = 1024;
constexpr uint32_t kUnitBytes = kDepth * 8 * sizeof(Bf16);             // eight rows of 64
constexpr uint32_t kGroupBytesW = kGroupCols * kDepth * sizeof(Bf16);  // a group's part of w
constexpr uint32_t kBytesW = kGroups * kGroupBytesW;

// What depends on the rows of a tile.
template <int kRows>
struct Sizes {
  static constexpr int kStages = kRows > 128 ? 4 : 6;
  static constexpr uint32_t kStageBytes = kBytesW + kRows * kDepth * sizeof(Bf16);
  static constexpr uint32_t kBoxBytes = kRows * kGroupCols * sizeof(Bf16);  // a group's part of the result
  static constexpr size_t kSharedBytes = kPatternBytes + kStages * kStageBytes + kGroups * kBoxBytes;
};

// Block (c, r) has column tile c and row tiles r, r + gridDim.y, ...
struct Shape {
  int row_tiles, steps;  // steps: of kDepth
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int kRows>
using Stages = Ring<Sizes<kRows>::kStages, Sizes<kRows>::kStageBytes>;
template <int kRows>
using Results = Ring<1, kGroups * Sizes<kRows>::kBoxBytes>;

struct Maps {
  const CUtensorMap &x, &w, &y;
};

// w is brought from memory once: of the blocks that have the same columns, each asks for other steps.
template <bool kTransposedW>
__device__ void prefetch_weights(const CUtensorMap& w, const Shape& shape) {
  const int col = blockIdx.x * kTileCols;
  for (int step = blockIdx.y; step < shape.steps; step += gridDim.y) {
    if constexpr (kTransposedW) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        prefetch_box(w, step * kDepth, col + group * kGroupCols);
      }
    } else {
      prefetch_box(w, col, step * kDepth);
    }
  }
}

// All stages of the block's tiles, one after the other; where the product is added to it, what is in y behind each.
template <int kRows, bool kTransposedW, bool kAccumulate>
__device__ void bring_stages(Stages<kRows> stages, Results<kRows> results, const Maps& maps, const Shape& shape) {
  const int col = blockIdx.x * kTileCols;
  for (int tile = blockIdx.y; tile < shape.row_tiles; tile += gridDim.y) {
    const int row = tile * kRows;
    for (int step = 0; step < shape.steps; ++step) {
      stages.wait_empty();
      arrive_and_expect(stages.full_now(), Sizes<kRows>::kStageBytes);
      load_box(stages.at() + kBytesW, maps.x, row, step * kDepth, stages.full_now());
      if constexpr (kTransposedW) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          load_box(stages.at() + group * kGroupBytesW, maps.w, step * kDepth, col + group * kGroupCols,
                   stages.full_now());
        }
      } else {
        load_box(stages.at(), maps.w, col, step * kDepth, stages.full_now());
      }
      stages.advance();
    }
    if constexpr (kAccumulate) {
      constexpr uint32_t kBoxBytes = Sizes<kRows>::kBoxBytes;
      results.wait_empty();
      arrive_and_expect(results.full_now(), kGroups * kBoxBytes);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        load_box(results.at() + group * kBoxBytes, maps.y, row, col + group * kGroupCols, results.full_now());
      }
      results.advance();
    }
  }
}

template <bool kTransposedW>
__device__ void multiply(float (&sums)[64], uint64_t w, uint64_t x, bool add) {
  multiply_64x128<kTransposedW, false>(sums, w, x, add);
}
template <bool kTransposedW>
__device__ void multiply(float (&sums)[96], uint64_t w, uint64_t x, bool add) {
  multiply_64x192<kTransposedW>(sums, w, x, add);
}

// sums = the group's 64 columns of a tile, as rows.
template <int kRows, bool kTransposedW>
__device__ void multiply_tile(float (&sums)[kRows / 2], Stages<kRows>& stages, int steps, int group, int lane) {
  constexpr uint32_t kStepW = kTransposedW ? 16 * 128 : 32, kStepX = 32;  // bytes, for 16 of the inner dimension
  uint32_t used = 0;                                                      // barrier of the stage before
  for (int step = 0; step < steps; ++step) {
    stages.wait_full();
    const uint64_t w = tile_descriptor(stages.at() + group * kGroupBytesW, kGroupBytesW);
    const uint64_t x = tile_descriptor(stages.at() + kBytesW, 16);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      multiply<kTransposedW>(sums, w + descriptor_step(i * kStepW), x + descriptor_step(i * kStepX), step > 0 || i > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > 0 && lane == 0) {
      arrive(used);
    }
    used = stages.empty_now();
    stages.advance();
  }
  wait_products<0>();
  settle(sums);
  if (lane == 0) {
    arrive(used);
  }
}

__device__ uint32_t pack_sum(float low, float high, float bias, uint32_t old) {
  return pack(low + bias + __uint_as_float(old << 16), high + bias + __uint_as_float(old & 0xFFFF0000));
}

// The group's sums to its box: rows of 64 columns. Of row r, unit u (eight columns) lies at place u ^ r % 8.
template <int kRows, bool kAccumulate>
__device__ void write_box(uint32_t box, const float (&sums)[kRows / 2], float2 bias, int warp, int lane) {
  const int r = lane % 8, block = lane / 8;  // of the 8 x 8 blocks, this lane's row and its block
  const uint32_t at = box + block / 2 * kUnitBytes + r * 128 + ((2 * warp + block % 2 ^ r) << 4);
#pragma unroll
  for (int unit = 0; unit < kRows / 8; unit += 2) {
    const float* s = sums + 4 * unit;
    Fragment old = {};
    if constexpr (kAccumulate) {
      old = load_fragment_transposed(at + unit * kUnitBytes);
    }
    store_blocks_transposed(at + unit * kUnitBytes, pack_sum(s[0], s[1], bias.x, old.r[0]),
                            pack_sum(s[2], s[3], bias.y, old.r[1]), pack_sum(s[4], s[5], bias.x, old.r[2]),
                            pack_sum(s[6], s[7], bias.y, old.r[3]));
  }
}

// Of columns col and col + 8, those that are there.
__device__ float2 fetch_bias(const Bf16* bias, int col, int cols) {
  return {bias != nullptr && col < cols ? __bfloat162float(bias[col]) : 0.0F,
          bias != nullptr && col + 8 < cols ? __bfloat162float(bias[col + 8]) : 0.0F};
}

template <int kRows, bool kTransposedW, bool kAccumulate>
__device__ void multiply_tiles(Stages<kRows> stages, Results<kRows> results, const Maps& maps, const Bf16* bias,
                               int cols, const Shape& shape, int group, int warp, int lane) {
  const uint32_t box = results.at() + group * Sizes<kRows>::kBoxBytes;
  const int col = blockIdx.x * kTileCols + group * kGroupCols;
  const float2 biases = fetch_bias(bias, col + warp * 16 + lane / 4, cols);
  for (int tile = blockIdx.y; tile < shape.row_tiles; tile += gridDim.y) {
    float sums[kRows / 2];
    multiply_tile<kRows, kTransposedW>(sums, stages, shape.steps, group, lane);
    if constexpr (kAccumulate) {
      results.wait_full();
    } else {
      if (warp == 0) {
        wait_boxes_read();
      }
      sync_threads_of(1 + group, kGroupThreads);
    }
    write_box<kRows, kAccumulate>(box, sums, biases, warp, lane);
    publish_box();
    sync_threads_of(1 + group, kGroupThreads);
    if (warp == 0) {
      store_box(maps.y, tile * kRows, col, box);
      if constexpr (kAccumulate) {
        wait_boxes_read();
        __syncwarp();
        if (lane == 0) {
          arrive(results.empty_now());
        }
      }
    }
    results.advance();
  }
  if (warp == 0) {
    wait_boxes_read();
  }
}

#endif

template <int kRows, bool kTransposedW, bool kAccumulate>
__global__ void __launch_bounds__(kThreads, 1)
    plain_product_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                         const __grid_constant__ CUtensorMap y, const Bf16* bias, int cols, const Shape shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kStages = Sizes<kRows>::kStages;
  __shared__ uint64_t barriers[2 * (kStages + 1)];
  extern __shared__ uint8_t shared[];
  const uint32_t first = shared_of(barriers);
  const uint32_t tiles = (shared_of(shared) + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  const Stages<kRows> stages{.slots = tiles, .full = first, .empty = first + kStages * 8};
  const Results<kRows> results{.slots = tiles + kStages * Sizes<kRows>::kStageBytes,
                               .full = first + 2 * kStages * 8,
                               .empty = first + 2 * kStages * 8 + 8};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  if (threadIdx.x == 0) {
    stages.init_barriers(1, kGroups * kGroupWarps);
    results.init_barriers(1, kGroups);
    publish_barriers();
    prefetch_map(x);
    prefetch_map(w);
    prefetch_map(y);
  }
  __syncthreads();
  const Maps maps{x, w, y};
  // Both ways wait for themselves, so that what comes behind is in the instruction cache by then.
  if (warp == kGroups * kGroupWarps) {
    prefetch_weights<kTransposedW>(w, shape);
    await_previous();
    bring_stages<kRows, kTransposedW, kAccumulate>(stages, results, maps, shape);
  } else {
    await_previous();
    multiply_tiles<kRows, kTransposedW, kAccumulate>(stages, results, maps, bias, cols, shape, warp / kGroupWarps,
                                                     warp % kGroupWarps, lane);
  }
#endif
}

int64_t column_tiles(const View& y) { return divide_up(y.cols, kTileCols); }

// Tiles of a block, one after the other.
int64_t rounds(const View& y, int rows, int processors) {
  const int64_t at_once = std::max<int64_t>(1, processors / column_tiles(y));
  return divide_up(divide_up(y.rows, rows), at_once);
}

template <int kRows, bool kTransposedW, bool kAccumulate>
void run_tiles(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, int processors,
               cudaStream_t stream) {
  const auto kernel = plain_product_kernel<kRows, kTransposedW, kAccumulate>;
  constexpr size_t kShared = Sizes<kRows>::kSharedBytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "asking for shared memory");
  const Shape shape{.row_tiles = static_cast<int>(divide_up(y.rows, kRows)),
                    .steps = static_cast<int>(divide_up(x.cols, kDepth))};
  const dim3 blocks(static_cast<unsigned>(column_tiles(y)),
                    static_cast<unsigned>(divide_up(shape.row_tiles, rounds(y, kRows, processors))));
  launch("plain_product_kernel", kernel, {blocks, kThreads, kShared, stream}, map_of(x, kRows),
         map_of(w, kTransposedW ? kDepth : kTileCols), map_of(y, kRows), data<Bf16>(bias), static_cast<int>(y.cols),
         shape);
}

template <bool kTransposedW, bool kAccumulate>
void run(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, int processors,
         cudaStream_t stream) {
  if (128 * rounds(y, 128, processors) <= 192 * rounds(y, 192, processors)) {
    run_tiles<128, kTransposedW, kAccumulate>(y, x, w, bias, processors, stream);
  } else {
    run_tiles<192, kTransposedW, kAccumulate>(y, x, w, bias, processors, stream);
  }
}

}  // namespace

// Microseconds in a chain with a pass over a, and by the best of eight algorithms of cuBLASLt (H200, 4,032 rows): 512
// columns from 512 7.5 and 8.9; 1536 from 512 13.3 and 15.4; 512 from 2048 with bias 18.0 and 19.3; added to dx, 512
// from 1536 14.7 and 16.5, from 2048 18.4 and 19.7. At 6,144 rows 0.9 to 1.9 less than there, at 2,048 up to 0.4. Each
// further 64 of the inner dimension takes 0.05 more than there.
bool plain_product_possible(const View& result, const ConstView& a, const ConstView& w) {
  constexpr int64_t kFewestTiles = 64, kMostRows = 6336, kMostCols = 1536, kMostDepth = 2048;
  const int64_t tiles = divide_up(result.rows, 128) * column_tiles(result);
  return vectors_of_8(result) && vectors_of_8(a) && vectors_of_8(w) && tiles >= kFewestTiles &&
         result.rows <= kMostRows && result.cols <= kMostCols && a.cols > 0 && a.cols <= kMostDepth &&
         has_body(plain_product_kernel<128, false, false>);
}

void plain_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, int processors,
                   cudaStream_t stream) {
  run<false, false>(y, x, w, bias, processors, stream);
}

void plain_backward(const View& dx, const ConstView& dy, const ConstView& w, bool accumulate, int processors,
                    cudaStream_t stream) {
  const auto chosen = accumulate ? run<true, true> : run<true, false>;
  chosen(dx, dy, w, {}, processors, stream);
}

}  // namespace tandem::cuda
