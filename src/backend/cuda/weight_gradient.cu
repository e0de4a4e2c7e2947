// The tokens of a tile are split among blocks of one cluster, which then add up their sums through each other's shared
// memory, always in the same order: no sum goes through device memory before it is final, and there are no atomics.
// A block has one group of four warps that multiply and a warp that asks the copy engine for stages of 64 tokens.
//
// Sizes, as measured on an H200 for 512 x 512 and 3,977 tokens: at once 120 of the 132 multiprocessors can be in
// clusters of four or eight and 102 in clusters of six, and a second round costs as much as the first; so there are 96
// blocks. Tiles of 128 x 128, split among six, exchange 53 KB a block, which takes a microsecond more than the 21 KB of
// 64 x 128 split among three. Two tiles, one below the other, share what they need of x.
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/weight_gradient.h"

namespace tandem::cuda {

namespace {

constexpr int kTileRows = 64, kTileCols = 128;
constexpr int kSplits = 3;  // of a tile's tokens
constexpr int kBelow = 2;   // tiles of a cluster, one below the other
constexpr int kCluster = kSplits * kBelow;
constexpr int kWarps = 4;  // that multiply
constexpr int kThreads = (kWarps + 1) * kWarp;
constexpr int kDepth = 64;  // tokens of a stage
constexpr int kStages = 7;
constexpr uint32_t kBoxBytes = kDepth * 64 * sizeof(Bf16);  // 64 columns of a stage
constexpr uint32_t kStageBytes = kBoxBytes * (kTileRows + kTileCols) / 64;
constexpr uint32_t kPatternBytes = 1024;

// A unit: eight columns of a warp's 16 rows, four sums in each lane. Of each warp's units, block `split` adds up every
// kSplits-th, beginning with number `split`.
constexpr int kUnits = kTileCols / 8;
constexpr int kOwnUnits = (kUnits + kSplits - 1) / kSplits;
constexpr uint32_t kSumsBytes = kSplits * kWarps * kOwnUnits * kWarp * sizeof(float4);
constexpr size_t kSharedBytes = kPatternBytes + kStages * kStageBytes + kSumsBytes;

struct Gradient {
  float* dw;
  int64_t stride;
  int rows, cols;
  bool accumulate;
  int column_tiles, steps;  // steps: of kDepth
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using Stages = Ring<kStages, kStageBytes>;

// What a block does: rows and columns from (row, col) on, steps [first, end).
struct Part {
  int row, col, tile, split, first, end;

  __device__ explicit Part(const Gradient& gradient) {
    const int cluster = blockIdx.x / kCluster, rank = static_cast<int>(rank_in_cluster());
    tile = rank % kBelow;
    split = rank / kBelow;
    row = (cluster / gradient.column_tiles * kBelow + tile) * kTileRows;
    col = cluster % gradient.column_tiles * kTileCols;
    first = split * gradient.steps / kSplits;
    end = (split + 1) * gradient.steps / kSplits;
  }
  __device__ static uint32_t rank_of(int split, int tile) { return split * kBelow + tile; }
};

// All stages, one after the other; of x, half for both blocks that need it.
__device__ void bring_stages(Stages stages, const CUtensorMap& dy, const CUtensorMap& x, const Part& part) {
  static_assert(kTileCols / kBelow == 64);
  const auto both = static_cast<uint16_t>(((1 << kBelow) - 1) << Part::rank_of(part.split, 0));
  for (int step = part.first; step < part.end; ++step) {
    stages.wait_empty();
    arrive_and_expect(stages.full_now(), kStageBytes);
    load_box(stages.at(), dy, step * kDepth, part.row, stages.full_now());
    load_box_to(stages.at() + (1 + part.tile) * kBoxBytes, x, step * kDepth, part.col + part.tile * 64,
                stages.full_now(), both);
    stages.advance();
  }
}

// sums = the tile's, over the block's tokens. A stage is given back only where it is filled again, so that nothing is
// sent to a block that may have ended.
__device__ void multiply_stages(float (&sums)[64], Stages stages, const Part& part, int lane) {
  uint32_t used = 0;  // barrier of the stage before
  for (int step = part.first; step < part.end; ++step) {
    stages.wait_full();
    const uint64_t a = tile_descriptor(stages.at(), kBoxBytes);
    const uint64_t b = tile_descriptor(stages.at() + kBoxBytes, kBoxBytes);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      const uint64_t tokens = descriptor_step(i * 16 * 128);
      multiply_64x128<true, true>(sums, a + tokens, b + tokens, step > part.first || i > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > part.first && step - 1 + kStages < part.end && lane < kBelow) {
      arrive_at(used, Part::rank_of(part.split, lane));
    }
    used = stages.empty_now();
    stages.advance();
  }
  wait_products<0>();
  settle(sums);
}

// To each block of the tile the units that it adds up. There: [split][warp][unit][lane].
__device__ void send_sums(const float4* to, const float (&sums)[64], const Part& part, int warp, int lane) {
  const uint32_t at = shared_of(to + (part.split * kWarps + warp) * kOwnUnits * kWarp + lane);
#pragma unroll
  for (int j = 0; j < kUnits; ++j) {
    store_at(at + j / kSplits * kWarp * sizeof(float4), Part::rank_of(j % kSplits, part.tile),
             {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
  }
}

__device__ void add(float2& to, float x, float y) {
  to.x += x;
  to.y += y;
}

// The block's units: the sums of all splits, in their order, and what was there before.
__device__ void add_sums(const float4* from, const Gradient& gradient, const Part& part, int warp, int lane) {
  float* const dw = gradient.dw + (part.row + warp * 16 + lane / 4) * gradient.stride + part.col + lane % 4 * 2;
  const auto at = [&](int i, int row) {
    return reinterpret_cast<float2*>(dw + row * gradient.stride + (i * kSplits + part.split) * 8);
  };
  const auto holds = [&](int i) {
    const int unit = i * kSplits + part.split;
    return unit < kUnits && part.col + unit * 8 < gradient.cols && part.row < gradient.rows;
  };
  float2 upper[kOwnUnits] = {}, lower[kOwnUnits] = {};  // rows lane / 4 and eight further down
#pragma unroll
  for (int i = 0; i < kOwnUnits; ++i) {
    if (gradient.accumulate && holds(i)) {
      upper[i] = *at(i, 0);
      lower[i] = *at(i, 8);
    }
  }
  sync_cluster();
  from += warp * kOwnUnits * kWarp + lane;
#pragma unroll
  for (int i = 0; i < kOwnUnits; ++i) {
#pragma unroll
    for (int split = 0; split < kSplits; ++split) {
      const float4 v = from[(split * kWarps * kOwnUnits + i) * kWarp];
      add(upper[i], v.x, v.y);
      add(lower[i], v.z, v.w);
    }
    if (holds(i)) {
      *at(i, 0) = upper[i];
      *at(i, 8) = lower[i];
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads, 1)
    weight_gradient_kernel(const __grid_constant__ CUtensorMap dy, const __grid_constant__ CUtensorMap x,
                           const Gradient gradient) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ uint64_t barriers[2 * kStages];
  extern __shared__ uint8_t shared[];
  uint8_t* const tiles = shared + (kPatternBytes - shared_of(shared) % kPatternBytes) % kPatternBytes;
  float4* const partial = reinterpret_cast<float4*>(tiles + kStages * kStageBytes);
  const uint32_t first = shared_of(barriers);
  const Stages stages{.slots = shared_of(tiles), .full = first, .empty = first + kStages * 8};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  if (threadIdx.x == 0) {
    stages.init_barriers(1, kBelow * kWarps);
    publish_barriers();
    prefetch_map(dy);
    prefetch_map(x);
  }
  const Part part(gradient);
  sync_cluster();
  await_previous();
  if (warp < kWarps) {
    float sums[64];
    multiply_stages(sums, stages, part, lane);
    send_sums(partial, sums, part, warp, lane);
    add_sums(partial, gradient, part, warp, lane);
  } else {
    bring_stages(stages, dy, x, part);
    sync_cluster();  // with the other warps, when they have sent their sums
  }
#endif
}

}  // namespace

// Microseconds here and by the best of eight algorithms of cuBLASLt, cold cache, 512 x 512: 2,048 tokens 5.5 and 6.4,
// 3,977 tokens 7.7 and 8.9, 6,144 tokens 9.8 and 10.5, but 8,000 tokens 11.6 and 11.4; below 1,000 tokens up to 0.7
// more than there. More than one round of clusters loses: 1024 x 512 takes cuBLASLt no longer than 512 x 512.
bool weight_gradient_possible(const View& dw, const View& dy, const View& x) {
  constexpr int64_t kMostClusters = 16, kMostTokens = 6144;
  const auto fits = [](const View& view) { return vectors_of_8(view) && view.cols % 64 == 0; };
  const bool pairs = reinterpret_cast<uintptr_t>(dw.data) % sizeof(float2) == 0 && dw.stride % 2 == 0;
  const int64_t clusters = divide_up(dw.rows, kBelow * kTileRows) * divide_up(dw.cols, kTileCols);
  return has_body(weight_gradient_kernel) && fits(dy) && fits(x) && pairs && clusters <= kMostClusters &&
         dy.rows <= kMostTokens;
}

void weight_gradient(const View& dw, const View& dy, const View& x, bool accumulate, cudaStream_t stream) {
  check(cudaFuncSetAttribute(weight_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "asking for shared memory");
  Gradient gradient{.dw = data<float>(dw),
                    .stride = dw.stride,
                    .rows = static_cast<int>(dw.rows),
                    .cols = static_cast<int>(dw.cols),
                    .accumulate = accumulate};
  gradient.column_tiles = static_cast<int>(divide_up(dw.cols, kTileCols));
  // At least one for each block; steps behind the last token bring zeros.
  gradient.steps = static_cast<int>(std::max<int64_t>(divide_up(dy.rows, kDepth), kSplits));
  const int64_t clusters = divide_up(dw.rows, kBelow * kTileRows) * gradient.column_tiles;
  launch("weight_gradient_kernel", weight_gradient_kernel,
         {static_cast<unsigned>(clusters * kCluster), kThreads, kSharedBytes, stream, kCluster}, map_of(dy, kDepth),
         map_of(x, kDepth), gradient);
}

}  // namespace tandem::cuda
