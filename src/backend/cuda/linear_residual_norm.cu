// On Hopper the product and what follows it (dropout, the residual connection and the norm) are one kernel; the product
// itself never goes to device memory.
//
// Tiles have 128 whole rows and are multiplied as in fused_product.cu: two groups of four warps multiply, and the four
// warps of a third group finish their sums while they multiply the next tile. The blocks of a cluster lie side by side,
// each with 256 columns, and share x's tiles: each loads a part. Each block sends its part of a row's mean and squares
// to all blocks, so that all have the same bits.
//
// Finishing takes longer than a product of depth 512. It waits for shared memory, which the products keep busy, and for
// instructions, unless its loops are short. These were no faster: eight warps that finish (products of 128 columns at a
// time, to leave registers for them, read the first factor twice), the first group finishing its own rows, or both
// groups theirs. Clusters of four that also share w's tiles do as much in a round, but only 30 of them fit.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_epilogue.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <int kCluster>
constexpr size_t kSharedBytes = kPatternBytes + kStages* kStageBytes + kGroups* kSlotBytes +
                                sizeof(Parameters) + kMeetings* kCluster* kSentBytes;

struct Shape {
  int tiles;  // tiles of kTileRows rows each
  int steps;  // steps of kDepth each
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using Stages = Ring<kStages, kStageBytes>;
using Results = Ring<kGroups, kSlotBytes>;  // one slot for each group

struct Maps {
  const CUtensorMap &x, &w, &residual;
};

// Loads the stages of all tiles, one after the other: the work of one warp.
template <int kCluster>
struct Bringer {
  static constexpr int kPartRows = kTileRows / kCluster;  // rows of x that this block loads for the cluster
  static constexpr uint16_t kAll = (1 << kCluster) - 1;

  const Maps& maps;
  const Shape& shape;
  bool on;  // true in the warp that loads
  Stages stages;
  int tile, rank, tiles_at_once, step = 0;

  // Loads the next stage, if there is one, as soon as all groups have released what it replaces. With a tile's first
  // stages it prefetches the residual into the L2 cache.
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

// Releases a stage.
template <int kCluster>
__device__ void release_stage(uint32_t barrier, int lane) {
  if (lane < kCluster) {
    arrive_at(barrier, lane);
  }
}

// sums += the group's 64 rows of the tile's product.
template <class H, int kCluster>
__device__ void multiply_tile(float (&sums)[128], Stages& stages, Bringer<kCluster>& bringer, int steps, int group,
                              int lane) {
  constexpr uint32_t kStep = 32;  // bytes, for 16 of the inner dimension
  uint32_t used = 0;              // barrier of the previous stage
  for (int step = 0; step < steps; ++step) {
    stages.wait_full();
    const uint64_t x = tile_descriptor(stages.at() + group * (kBytesA / kGroups), 16);
    const uint64_t w = tile_descriptor(stages.at() + kBytesA, 16);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      multiply_64x256<H, false>(sums, x + descriptor_step(i * kStep), w + descriptor_step(i * kStep), true);
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

// Adds the bias to sums in the layout that Writer::write takes.
__device__ void add_bias(float (&sums)[128], const float4 (*bias)[4], int thread) {
#pragma unroll
  for (int i = 0; i < kUnits / 2; ++i) {
    const float4 two = bias[i][thread % 4];  // the columns of two units
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

// Multiplies the block's tiles. The last one has no next one during which it is finished: each warp does its own rows.
template <class H, int kCluster, class Own>
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
    float sums[128] = {};  // set, so that the ones before are not kept
    multiply_tile<H, kCluster>(sums, stages, bringer, shape.steps, writer.group, lane);
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
        results.at(), sums, [](int) { return 0; }, [](int, float a, float b) { return pack<H>(a, b); });
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

#endif

template <class H, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    product_norm_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap residual, const __grid_constant__ NormArguments<H> a,
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
  if (warp == kGroupWarps) {  // w comes from memory once: each cluster requests different steps
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
    // The second group is a step behind the first, so that it seldom has to wait for the first before it loads.
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
      Finisher<H, kCluster>(a, parameters, rank, lane)
          .finish(rows, slot + number * kChunkRows * 128, row_of(tile, group), meeting(0), 0, a.rows);
    };
    multiply_tiles<H, kCluster>(stages, results, bringer, a.bias != nullptr ? parameters.bias : nullptr, shape,
                                {.group = group, .thread = thread},
                                OwnRows<decltype(fetch), decltype(finish)>{fetch, finish});
  } else {
    lower_registers<152>();
    const Finisher<H, kCluster> finisher(a, parameters, rank, lane);
    int tile = cluster;
    Units rows;  // rows of the residual
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
  sync_cluster();  // no block exits while another may still write to its shared memory
#endif
}

// Clusters of four do not fill all parts of the GPU.
template <int kCluster>
int clusters_at_once(int processors) {
  if (kCluster == 2) {
    return processors / 2;
  }
  check(cudaFuncSetAttribute(product_norm_kernel<Bf16, kCluster>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kSharedBytes<kCluster>),
        "asking for shared memory");
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
  check(cudaOccupancyMaxActiveClusters(&clusters, product_norm_kernel<Bf16, kCluster>, &config), "asking for clusters");
  return std::min(clusters, processors / kCluster);
}

template <int kCluster>
void run_together(const op::LinearResidualNorm& p, CudaBackend& gpu) {
  const auto kernel = product_norm_kernel<Bf16, kCluster>;
  const Shape shape{.tiles = static_cast<int>(divide_up(p.normed.rows, kTileRows)),
                    .steps = static_cast<int>(p.x.cols / kDepth)};
  const NormArguments<Bf16> arguments{.sum = data<Bf16>(p.sum),
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
  const int clusters = std::min(shape.tiles, clusters_at_once<kCluster>(gpu.processors()));
  launch("product_norm_kernel", kernel, {clusters * kCluster, kThreads, kSharedBytes<kCluster>, gpu.queue(), kCluster},
         map_of<Bf16>(p.x, kTileRows / kCluster), map_of<Bf16>(p.w.plain(), kTileCols),
         map_of<Bf16>(p.residual, kTileRows), arguments, shape);
}

}  // namespace

std::optional<int> cuda::norm_clusters_of_4(int processors) {
  return has_body(product_norm_kernel<Bf16, 4>) ? std::optional(clusters_at_once<4>(processors)) : std::nullopt;
}

void op::LinearResidualNorm::run(CudaBackend& gpu) const {
  const ProductKernel kernel = kernel_of(*this, gpu.chip());
  if (kernel == ProductKernel::cublas_and_passes) {
    run_in_parts(gpu);
  } else {
    (kernel == ProductKernel::norm_of_2 ? run_together<2> : run_together<4>)(*this, gpu);
  }
}

}  // namespace tandem::backend
