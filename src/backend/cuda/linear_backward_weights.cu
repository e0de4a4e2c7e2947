// On Hopper two small products are one kernel: each alone leaves multiprocessors idle, together they fill them. There
// are no atomics, and no sum goes through device memory before it is final. A block has one or two groups of four warps
// that multiply, each for 64 rows, and a warp that requests stages of 64 tokens from the copy engine. Two blocks are a
// cluster:
//  - with few tiles, both compute the same one, each over half of the tokens. Then each sends the sums of half of the
//    columns to the other one's shared memory and adds up the other half.
//  - with more, they compute two tiles, one below the other, and each loads half of the columns of x for both.
//
// What counts is how many bytes reach a multiprocessor: about 64 per clock while all of them work. At full speed a tile
// of 128 x 128 needs just that, and 48 if it loads half of the x; blocks with 64 x 128 each, all tokens and one factor
// for both, need 96.
#include <algorithm>

#include "backend/cuda/column_sums.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/hopper_products.h"

namespace tandem::backend {

namespace {

using namespace cuda;

// ---- two products

constexpr int kProducts = 2;
constexpr int kCluster = 2;
constexpr int kHalfCols = kPairCols / 2;
constexpr int kTokens = 64;                                // tokens per stage
constexpr uint32_t kBoxBytes = kTokens * 64 * kHalfBytes;  // 64 columns of a stage
constexpr uint32_t kPatternBytes = 1024;

// A unit: eight columns of a warp's 16 rows, four sums in each lane.
constexpr int kHalfUnits = kHalfCols / 8;
constexpr uint32_t kSentBytes = kHalfUnits * kWarp * sizeof(float4);  // bytes sent to each warp
constexpr int kPitch = kHalfCols + 8;                                 // floats from row to row, for few bank conflicts
constexpr uint32_t kRowsBytes = 16 * kPitch * sizeof(float);          // a warp's memory: what it is sent, then its rows
static_assert(kRowsBytes >= kSentBytes);

// kGroups: groups of four warps, each with 64 rows of a tile. kSplit_: the cluster's blocks share a tile.
template <int kGroups, int kStages_, bool kSplit_>
struct Shape {
  static constexpr bool kSplit = kSplit_;
  static constexpr int kTileRows = 64 * kGroups;
  static constexpr int kWarps = 4 * kGroups;  // warps that multiply
  static constexpr int kThreads = (kWarps + 1) * kWarp;
  static constexpr int kStages = kStages_;
  static constexpr uint32_t kFirstOfX = kGroups * kBoxBytes;  // offset of x's tiles in a stage
  static constexpr uint32_t kStageBytes = kFirstOfX + kPairCols / 64 * kBoxBytes;
  static constexpr size_t kSharedBytes = kPatternBytes + kStages * kStageBytes + kWarps * kRowsBytes;

  static int64_t clusters(const View& dw) {
    return divide_up(dw.rows, kTileRows * (kSplit ? 1 : kCluster)) * divide_up(dw.cols, kPairCols);
  }
};
using Small = Shape<1, 6, true>;
using Large = Shape<2, 5, true>;
using Pair = Shape<2, 5, false>;

struct Product {
  CUtensorMap dy, x;
  float* dw;
  int64_t stride;
  int rows, cols, column_tiles, clusters;
};

struct Products {
  Product product[kProducts];
  int steps;  // steps of kTokens each
  bool accumulate;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <class S>
using Stages = Ring<S::kStages, S::kStageBytes>;

// A block's work: rows and columns from (row, col) on, steps [first, end).
struct Part {
  int row, col, rank, first = 0, end;
};

template <class S>
__device__ Part part_of(const Product& product, int cluster, int steps) {
  const int rank = static_cast<int>(rank_in_cluster());
  Part part{.row = cluster / product.column_tiles * S::kTileRows,
            .col = cluster % product.column_tiles * kPairCols,
            .rank = rank,
            .end = steps};
  if constexpr (S::kSplit) {
    part.first = rank * steps / kCluster;
    part.end = (rank + 1) * steps / kCluster;
  } else {
    part.row = part.row * kCluster + rank * S::kTileRows;
  }
  return part;
}

template <class S>
__device__ void bring_stages(Stages<S> stages, const Product& product, const Part& part) {
  for (int step = part.first; step < part.end; ++step) {
    stages.wait_empty();
    arrive_and_expect(stages.full_now(), S::kStageBytes);
#pragma unroll
    for (int i = 0; i < S::kTileRows / 64; ++i) {
      load_box(stages.at() + i * kBoxBytes, product.dy, step * kTokens, part.row + i * 64, stages.full_now());
    }
    const uint32_t x = stages.at() + S::kFirstOfX;
    if constexpr (S::kSplit) {
#pragma unroll
      for (int i = 0; i < kPairCols / 64; ++i) {
        load_box(x + i * kBoxBytes, product.x, step * kTokens, part.col + i * 64, stages.full_now());
      }
    } else {
      static_assert(kPairCols == kCluster * 64);
      load_box_to(x + part.rank * kBoxBytes, product.x, step * kTokens, part.col + part.rank * 64, stages.full_now(),
                  (1 << kCluster) - 1);
    }
    stages.advance();
  }
}

// Computes the sums of the group's 64 rows over the block's tokens.
template <class H, class S>
__device__ void multiply_stages(float (&sums)[64], Stages<S> stages, const Part& part, int group, int lane) {
  uint32_t used = 0;  // barrier of the previous stage
  for (int step = part.first; step < part.end; ++step) {
    stages.wait_full();
    const uint64_t a = tile_descriptor(stages.at() + group * kBoxBytes, kBoxBytes);
    const uint64_t b = tile_descriptor(stages.at() + S::kFirstOfX, kBoxBytes);
    begin_products();
#pragma unroll
    for (int i = 0; i < kTokens / 16; ++i) {
      const uint64_t tokens = descriptor_step(i * 16 * 128);
      multiply_64x128<H>(sums, a + tokens, b + tokens, step > part.first || i > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > part.first && lane < (S::kSplit ? 1 : kCluster)) {
      S::kSplit ? arrive(used) : arrive_at(used, lane);
    }
    used = stages.empty_now();
    stages.advance();
  }
  wait_products<0>();
  settle(sums);
}

// Unit i of the first or the second half of the tile's columns.
__device__ float4 unit_of(const float (&sums)[64], int half, int i) {
  const int j = 4 * i, k = 4 * (i + kHalfUnits);
  return half == 0 ? float4{sums[j], sums[j + 1], sums[j + 2], sums[j + 3]}
                   : float4{sums[k], sums[k + 1], sums[k + 2], sums[k + 3]};
}

__device__ float4 sum_of(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Sends the half that the other block adds up to the same warp there, in the order [unit][lane].
__device__ void send_sums(const float* to, const float (&sums)[64], const Part& part, uint32_t arrived, int lane) {
  const int other = 1 - part.rank;
#pragma unroll
  for (int i = 0; i < kHalfUnits; ++i) {
    send_to(shared_of(to) + (i * kWarp + lane) * sizeof(float4), other, unit_of(sums, other, i), arrived);
  }
}

// Writes half of a warp's sums, plus what was there before if `accumulate`, plus what the other block sent to `rows` if
// the tile is split. They go by way of `rows`, so that whole rows are written.
template <bool kSplit>
__device__ void write_half(float* rows, const float (&sums)[64], const Product& product, bool accumulate,
                           const Part& part, int half, uint32_t arrived, int warp, int lane) {
  constexpr int kLanes = kHalfCols / 4, kAtOnce = kWarp / kLanes, kTurns = 16 / kAtOnce;  // lanes per row; rows
  const int row = lane / kLanes, col = lane % kLanes * 4;
  const int first_row = part.row + warp * 16, first_col = part.col + half * kHalfCols;
  const bool holds = first_row < product.rows && first_col < product.cols;
  float* const dw = product.dw + (first_row + row) * product.stride + first_col + col;
  const auto at = [&](int turn) { return reinterpret_cast<float4*>(dw + turn * kAtOnce * product.stride); };
  float4 before[kTurns] = {};
  if (accumulate && holds) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      before[turn] = *at(turn);
    }
  }
  float4 own[kHalfUnits];
  if constexpr (kSplit) {
    wait_barrier<true>(arrived, 0);
  }
#pragma unroll
  for (int i = 0; i < kHalfUnits; ++i) {
    own[i] = unit_of(sums, half, i);
    if constexpr (kSplit) {
      own[i] = sum_of(own[i], reinterpret_cast<const float4*>(rows)[i * kWarp + lane]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kHalfUnits; ++i) {
    float* const to = rows + lane / 4 * kPitch + i * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = {own[i].x, own[i].y};
    *reinterpret_cast<float2*>(to + 8 * kPitch) = {own[i].z, own[i].w};
  }
  __syncwarp();
  if (holds) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const float* const from = rows + (turn * kAtOnce + row) * kPitch + col;
      *at(turn) = sum_of(before[turn], *reinterpret_cast<const float4*>(from));
    }
  }
}

#endif

// Grid: the clusters of the first product, then those of the second one.
template <class H, class S>
__global__ void __launch_bounds__(S::kThreads, 1) weight_gradients_kernel(const __grid_constant__ Products products) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ uint64_t barriers[2 * S::kStages + S::kWarps];
  extern __shared__ uint8_t shared[];
  uint8_t* const tiles = shared + (kPatternBytes - shared_of(shared) % kPatternBytes) % kPatternBytes;
  const uint32_t first = shared_of(barriers);
  const Stages<S> stages{.slots = shared_of(tiles), .full = first, .empty = first + S::kStages * 8};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  const uint32_t arrived = first + (2 * S::kStages + warp) * 8;
  const int cluster = blockIdx.x / kCluster, before = products.product[0].clusters;
  const Product& product = products.product[cluster < before ? 0 : 1];
  if (threadIdx.x == 0) {
    stages.init_barriers(1, S::kWarps * (S::kSplit ? 1 : kCluster));
    for (int i = 0; i < S::kWarps; ++i) {
      init_barrier(first + (2 * S::kStages + i) * 8, 1);
    }
    publish_barriers();
    prefetch_map(product.dy);
    prefetch_map(product.x);
  }
  const Part part = part_of<S>(product, cluster < before ? cluster : cluster - before, products.steps);
  sync_cluster();
  await_previous();
  if (warp < S::kWarps) {
    float sums[64];
    float* const rows = reinterpret_cast<float*>(tiles + S::kStages * S::kStageBytes + warp * kRowsBytes);
    const auto write = [&](int half) {
      write_half<S::kSplit>(rows, sums, product, products.accumulate, part, half, arrived, warp, lane);
    };
    if constexpr (S::kSplit) {
      arrive_and_expect(arrived, kSentBytes);
      multiply_stages<H, S>(sums, stages, part, warp / 4, lane);
      send_sums(rows, sums, part, arrived, lane);
      write(part.rank);
    } else {
      multiply_stages<H, S>(sums, stages, part, warp / 4, lane);
      write(0);
      write(1);
    }
  } else {
    bring_stages<S>(stages, product, part);
  }
  if constexpr (!S::kSplit) {
    sync_cluster();  // no block exits while the other one may still arrive at its barriers
  }
#endif
}

template <class S>
void launch_products(Products products, std::span<const WeightGradient> gradients, cudaStream_t stream) {
  int clusters = 0;
  for (size_t i = 0; i < kProducts; ++i) {
    const WeightGradient& from = gradients[i];
    Product& to = products.product[i];
    to = {.dy = map_of<Bf16>(from.dy, kTokens),
          .x = map_of<Bf16>(from.x, kTokens),
          .dw = data<float>(from.dw),
          .stride = from.dw.stride,
          .rows = static_cast<int>(from.dw.rows),
          .cols = static_cast<int>(from.dw.cols),
          .column_tiles = static_cast<int>(divide_up(from.dw.cols, kPairCols)),
          .clusters = static_cast<int>(S::clusters(from.dw))};
    clusters += to.clusters;
  }
  launch("weight_gradients_kernel", weight_gradients_kernel<Bf16, S>,
         {clusters * kCluster, S::kThreads, S::kSharedBytes, stream, kCluster}, products);
}

void run_pair(std::span<const WeightGradient> gradients, bool accumulate, ProductKernel kernel, cudaStream_t stream) {
  // At least one step for each block; steps past the last token load zeros.
  const auto steps = static_cast<int>(std::max<int64_t>(divide_up(gradients[0].dy.rows, kTokens), kCluster));
  const Products products{.steps = steps, .accumulate = accumulate};
  const auto launch = kernel == ProductKernel::pair_64    ? launch_products<Small>
                      : kernel == ProductKernel::pair_128 ? launch_products<Large>
                                                          : launch_products<Pair>;
  launch(products, gradients, stream);
}

// ---- the sums of dy's columns

// partial[part, col] = sum of dy[row, col] over the rows of the part. Grid: (column blocks, parts).
template <class H, bool kVector>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_kernel(float* partial, const H* dy, int64_t stride, int64_t rows, int64_t cols) {
  await_previous();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_col = int64_t{blockIdx.x} * kSumColumns, col = first_col + lane * 8;
  const int64_t rows_of_part = (rows + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * rows_of_part, end = min(rows, begin + rows_of_part);
  float sums[8] = {};
  if (col < cols) {
#pragma unroll 8
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
      float values[8];
      load8<kVector>(values, dy + row * stride, col, cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[i] += values[i];
      }
    }
  }
  write_block_sums(partial + blockIdx.y * cols, sums, first_col, cols);
}

void sum_columns(const View& sums, const ConstView& dy, bool accumulate, CudaBackend& gpu) {
  if (dy.rows == 0) {
    if (!accumulate) {
      gpu.fill_zero(sums);
    }
    return;
  }
  const int64_t column_blocks = divide_up(dy.cols, kSumColumns);
  const int64_t parts = std::max<int64_t>(1, std::min(divide_up(dy.rows, 64), 8 * gpu.processors() / column_blocks));
  float* partial = gpu.late_sums().room(parts * dy.cols);
  const auto kernel = vectors_of_8(dy) ? column_sums_kernel<Bf16, true> : column_sums_kernel<Bf16, false>;
  launch("column_sums_kernel", kernel, {{column_blocks, parts}, kSumThreads, 0, gpu.queue()}, partial, data<Bf16>(dy),
         dy.stride, dy.rows, dy.cols);
  gpu.late_sums().add(sums_of(sums, accumulate), partial, parts);
}

}  // namespace

void op::LinearBackwardWeights::run(CudaBackend& gpu) const {
  for (const auto& [dw, dbias, dy, x] : gradients) {
    require(dw.dtype == DType::f32, "the GPU keeps parameter gradients in f32, not in {}", name_of(dw.dtype));
    if (dw.size() > 0 && !dbias.empty()) {  // first, while dy may still be in the cache
      sum_columns(dbias, dy, accumulate, gpu);
    }
  }
  if (const ProductKernel kernel = kernel_of(*this, gpu.chip()); kernel != ProductKernel::cublas) {
    run_pair(gradients, accumulate, kernel, gpu.queue());
    return;
  }
  for (const auto& [dw, dbias, dy, x] : gradients) {
    if (dy.rows > 0) {
      gpu.gemm().run({.c = dw, .a = dy, .b = x, .transpose_a = true, .beta = accumulate ? 1.0F : 0.0F});
    } else if (!accumulate) {
      gpu.fill_zero(dw);
    }
  }
}

}  // namespace tandem::backend
