// One block of 128 x 256 sums per multiprocessor. Two groups of four warps multiply, each 64 of the 128 rows; the four
// warps of a third group, one for each part of the multiprocessor, finish these sums while the others multiply the next
// tile, and fetch what else it needs. There is no extra warp for the copy engine (more warps would leave the others too
// few registers): a warp of the second group requests tiles of 64 columns of both factors from it, up to three stages
// ahead.
//
// Tiles this large, and a pair of blocks that shares the second factor's, keep the traffic below what the L2 cache can
// deliver (128 x 128 would double it). They also keep within the shared memory's 128 bytes per cycle: products read 80,
// the copy engine writes 47. Finishing a tile slows the next one's products down: with a depth of 512 they take 8,000
// cycles alone, 10,300 beside dropout, 9,300 beside the gate.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/exponential_epilogue.cuh"
#include "backend/cuda/fused_epilogue.cuh"

namespace tandem::backend::cuda {

namespace {

constexpr int kCluster = 2;  // blocks, one below the other, that share the second factor's tiles: each loads a part
constexpr uint32_t kBiasBytes = kTileCols * sizeof(float);
constexpr int kBiasSlots = 2;
constexpr uint32_t kBiasFrom = kStages * kStageBytes + kGroups * kSlotBytes;
constexpr uint32_t kGatesFrom = kBiasFrom + kBiasSlots * kBiasBytes, kMostGateBytes = 32;  // bytes per thread
constexpr size_t kSharedBytes = kPatternBytes + kGatesFrom + kGroups * kGroupThreads * kMostGateBytes;

// The order in which a cluster's tiles are computed: column by column of a band of rows, then the band before it. Norms
// and the products of linear_residual_norm.cu go from the first row to the last, these products the other way: they
// find the last rows of what the previous kernel wrote in the L2 cache, and leave the first ones there for the next.
// Wide results have bands of several rows of tiles, so that the second factor, which may not stay in the L2 cache
// beside the output, is read once for all of them.
struct Shape {
  int tiles, row_tiles, column_tiles, band;  // tiles of a cluster
  int steps;                                 // steps of kDepth each

  static constexpr int kNarrow = 16;  // column tiles
  static constexpr int kWideBand = 8;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ int first_of_band(int tile) const { return tile / (band * column_tiles) * band; }
  __device__ int rows_of_band(int tile) const { return max(1, min(band, row_tiles - first_of_band(tile))); }
  __device__ int in_band(int tile) const { return tile % (band * column_tiles); }
  // First row and column of this block's part of a tile.
  __device__ int row(int tile) const {
    const int row_tile = row_tiles - 1 - (first_of_band(tile) + in_band(tile) % rows_of_band(tile));
    return (row_tile * kCluster + blockIdx.x % kCluster) * kTileRows;
  }
  __device__ int col(int tile) const { return in_band(tile) / rows_of_band(tile) * kTileCols; }
  __device__ int first() const { return blockIdx.x / kCluster; }
  __device__ int next(int tile) const { return tile + gridDim.x / kCluster; }
  __device__ bool last(int tile) const { return next(tile) >= tiles; }
  __device__ int count() const { return (tiles - 1 - first()) / (gridDim.x / kCluster) + 1; }  // this block's tiles
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using Stages = Ring<kStages, kStageBytes>;
using Results = Ring<kGroups, kSlotBytes>;    // one slot for each group
using Biases = Ring<kBiasSlots, kBiasBytes>;  // a slot is empty when both groups have written a tile

// Loads the block's part of a stage of the second factor into all blocks of the cluster.
template <bool kTransposedB>
__device__ void bring_second(const Stages& stages, const CUtensorMap& b, int col, int step) {
  constexpr int kPart = kTileCols / kCluster;
  constexpr uint16_t kAll = (1 << kCluster) - 1;
  const int first = static_cast<int>(rank_in_cluster()) * kPart;
  const uint32_t to = stages.at() + kBytesA + first * kDepth * kHalfBytes;
  if constexpr (kTransposedB) {
#pragma unroll
    for (int i = 0; i < kPart; i += kDepth) {
      load_box_to(to + i * kDepth * kHalfBytes, b, step * kDepth, col + first + i, stages.full_now(), kAll);
    }
  } else {
    load_box_to(to, b, col + first, step * kDepth, stages.full_now(), kAll);
  }
}

// Prefetches what the first tiles need of the second factor: clusters that begin with the same columns request
// different steps.
template <bool kTransposedB>
__device__ void prefetch_second(const CUtensorMap& b, const Shape& shape) {
  constexpr int kPart = kTileCols / kCluster, kSharers = 8;
  const int tile = shape.first(), col = shape.col(tile) + static_cast<int>(rank_in_cluster()) * kPart;
  for (int step = shape.row(tile) / (kCluster * kTileRows) % kSharers; step < shape.steps; step += kSharers) {
    if constexpr (kTransposedB) {
#pragma unroll
      for (int i = 0; i < kPart; i += kDepth) {
        prefetch_box(b, step * kDepth, col + i);
      }
    } else {
      prefetch_box(b, col, step * kDepth);
    }
  }
}

// Loads the stages of all tiles, one after the other: the work of one warp.
template <bool kTransposedB>
struct Bringer {
  const CUtensorMap& a;
  const CUtensorMap& b;
  const Shape& shape;
  bool on;  // true in the warp that loads
  Stages stages;
  int tile, step = 0;
  int row = shape.row(tile), col = shape.col(tile);

  // Loads the next stage, if there is one, as soon as all groups have released what it replaces.
  __device__ void bring() {
    if (!on || tile >= shape.tiles) {
      return;
    }
    stages.wait_empty();
    arrive_and_expect(stages.full_now(), kStageBytes);
    load_box(stages.at(), a, row, step * kDepth, stages.full_now());
    bring_second<kTransposedB>(stages, b, col, step);
    stages.advance();
    if (++step == shape.steps) {
      step = 0;
      tile = shape.next(tile);
      row = shape.row(tile);
      col = shape.col(tile);
    }
  }
};

// Releases a stage. Skipped for the last ones: nobody waits, and the peer block may have exited. `awaited`: how many
// releases are still waited for.
__device__ void release_stage(uint32_t barrier, int lane, int& awaited) {
  if (lane < kCluster && awaited > 0) {
    arrive_at(barrier, lane);
  }
  --awaited;
}

// sums = the group's 64 rows of the tile's product.
template <class H, bool kTransposedB>
__device__ void multiply_tile(float (&sums)[128], Stages& stages, Bringer<kTransposedB>& bringer, const Writer& writer,
                              int steps, bool first, int& awaited) {
  constexpr uint32_t kStepA = 32, kStepB = kTransposedB ? 16 * 128 : 32;  // bytes, for 16 of the inner dimension
  const int lane = writer.thread % kWarp;
  uint32_t used = 0;  // barrier of the previous stage
  for (int step = 0; step < steps; ++step) {
    stages.wait_full();
    const uint64_t a = tile_descriptor(stages.at() + writer.group * (kBytesA / kGroups), 16);
    const uint64_t b = tile_descriptor(stages.at() + kBytesA, kTransposedB ? kBytesB / 4 : 16);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      multiply_64x256<H, kTransposedB>(sums, a + descriptor_step(i * kStepA), b + descriptor_step(i * kStepB),
                                       step > 0 || i > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > 0) {
      release_stage(used, lane, awaited);
    }
    if (step > 0 || !first) {  // loads what replaces the previous stage
      bringer.bring();
    }
    used = stages.empty_now();
    stages.advance();
  }
  wait_products<0>();
  settle(sums);
  release_stage(used, lane, awaited);
}

// Chunk `number` of a group's part of the tile, from row `from`: 64 columns, or 16 rows if the epilogue needs whole
// rows.
template <class Epilogue>
__device__ Chunk chunk_of(const Results& results, const Shape& shape, int tile, int group, int number, int lane,
                          int from = 0) {
  constexpr bool kRows = Epilogue::kWholeRows;
  return {.row = shape.row(tile) + group * kGroupRows + (kRows ? number * kChunkRows : from),
          .col = shape.col(tile) + (kRows ? 0 : number * kChunkCols),
          .lane = lane,
          .at = results.at() + (kRows ? number * kChunkRows * 128 : number * kChunkBytes + from * 128)};
}

template <class Epilogue>
__device__ void finish_chunk(const Results& results, const Epilogue& epilogue, const Chunk& chunk, int count,
                             const typename Epilogue::Gates& gates, const typename Epilogue::Constants& constants) {
  results.wait_full();
  if (chunk.col < epilogue.cols) {
    epilogue.finish(chunk, count, gates, constants);
  }
}

// The last tile's gates, fetched early by the warps that finish the others, so that they are there when needed.
template <class Epilogue>
struct LastGates {
  using Gates = typename Epilogue::Gates;
  static constexpr bool kAny = !std::is_empty_v<Gates>;
  static_assert(sizeof(Gates) <= kMostGateBytes);

  Gates* gates;  // lies in shared memory: one for each thread that multiplies
  uint32_t barrier;

  __device__ Gates get(int group, int thread) const {
    if constexpr (kAny) {
      wait_barrier(barrier, 0);
    }
    return kAny ? gates[group * kGroupThreads + thread] : Gates{};
  }
};

// The last tile has no next one during which it could be finished, so the groups finish most of it themselves. There
// is at least one tile.
template <class Epilogue>
__device__ void multiply_tiles(Stages stages, Results results, Biases biases, Bringer<Epilogue::kTransposedB> bringer,
                               const float2* bias, const LastGates<Epilogue>& last, const Epilogue& epilogue,
                               const Shape& shape, const Writer& writer) {
  results.slot = writer.group;
  const int lane = writer.thread % kWarp, warp = writer.thread / kWarp;
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) {
    bringer.bring();
  }
  int tile = shape.first(), awaited = shape.count() * shape.steps - kStages;
  while (true) {
    float sums[128];
    multiply_tile<typename Epilogue::Type>(sums, stages, bringer, writer, shape.steps, tile == shape.first(), awaited);
    if constexpr (Epilogue::kBias) {
      biases.wait_full();
    }
    results.wait_empty();
    epilogue.write(results.at(), sums, bias + biases.slot * (kTileCols / 2), writer);
    __syncwarp();
    if (lane == 0) {
      arrive(results.full_now());
    }
    if (shape.last(tile)) {
      break;
    }
    results.parity ^= 1;
    biases.advance();
    tile = shape.next(tile);
  }
  arrive_at_cluster();
  const Chunk chunk = chunk_of<Epilogue>(results, shape, tile, writer.group, warp, lane);
  finish_chunk(results, epilogue, chunk, kGroupRows - Epilogue::kHelpedRows, last.get(writer.group, writer.thread),
               epilogue.constants());
}

// Fetches what a tile needs besides the factors: a thread has one of its rows and two of its columns.
template <class Epilogue>
__device__ void prepare_tile(Biases& biases, float2* bias, const Epilogue& epilogue, const Shape& shape, int tile,
                             int thread) {
  if (tile >= shape.tiles) {
    return;
  }
  epilogue.prefetch_gates(shape.row(tile) + thread, shape.col(tile));
  if constexpr (Epilogue::kBias) {
    bias[biases.slot * (kTileCols / 2) + thread] = epilogue.fetch_biases(shape.col(tile) + 2 * thread);
    arrive(biases.full_now());
    biases.advance();
  }
}

// Each warp has its chunk of every slot. A tile is prepared when the one two before it is finished.
template <class Epilogue>
__device__ void finish_tiles(Results results, Biases biases, float2* bias, const LastGates<Epilogue>& last,
                             const Epilogue& epilogue, const Shape& shape, int thread) {
  static_assert(kTileRows == kGroupThreads && kTileCols == 2 * kGroupThreads);
  const int warp = thread / kWarp, lane = thread % kWarp;
  int tile = shape.first();
  prepare_tile(biases, bias, epilogue, shape, tile, thread);
  prepare_tile(biases, bias, epilogue, shape, shape.next(tile), thread);
  const auto constants = epilogue.constants();
  for (; !shape.last(tile); tile = shape.next(tile)) {
    for (int group = 0; group < kGroups; ++group) {
      const Chunk chunk = chunk_of<Epilogue>(results, shape, tile, group, warp, lane);
      finish_chunk(results, epilogue, chunk, kGroupRows, epilogue.fetch_gates(chunk), constants);
      __syncwarp();
      if (lane == 0) {
        arrive(results.empty_now());
      }
      results.advance();
    }
    prepare_tile(biases, bias, epilogue, shape, shape.next(shape.next(tile)), thread);  // both groups have the biases
  }
  arrive_at_cluster();
  if constexpr (LastGates<Epilogue>::kAny) {
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
      const Chunk chunk = chunk_of<Epilogue>(results, shape, tile, group, warp, lane);
      last.gates[group * kGroupThreads + thread] = epilogue.fetch_gates(chunk);
    }
    arrive(last.barrier);
  }
  if constexpr (Epilogue::kHelpedRows > 0) {
    constexpr int kFrom = kGroupRows - Epilogue::kHelpedRows;
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
      const Chunk chunk = chunk_of<Epilogue>(results, shape, tile, group, warp, lane, kFrom);
      finish_chunk(results, epilogue, chunk, Epilogue::kHelpedRows, epilogue.fetch_gates(chunk), constants);
      results.advance();
    }
  }
}

#endif

template <class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    fused_product_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                         const __grid_constant__ Epilogue epilogue, const Shape shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ uint64_t barriers[2 * (kStages + kGroups + kBiasSlots) + 1];
  extern __shared__ uint8_t shared[];
  uint8_t* const tiles = shared + (kPatternBytes - shared_of(shared) % kPatternBytes) % kPatternBytes;
  uint8_t* const slots = tiles + kStages * kStageBytes;
  const uint32_t first = shared_of(barriers);
  const Stages stages{.slots = shared_of(tiles), .full = first, .empty = first + kStages * 8};
  const Results results{
      .slots = shared_of(slots), .full = first + 2 * kStages * 8, .empty = first + (2 * kStages + kGroups) * 8};
  constexpr int kBiasBarrier = 2 * (kStages + kGroups), kGatesBarrier = kBiasBarrier + 2 * kBiasSlots;
  const Biases biases{.slots = shared_of(tiles + kBiasFrom),
                      .full = first + kBiasBarrier * 8,
                      .empty = first + (kBiasBarrier + kBiasSlots) * 8};
  float2* const bias = reinterpret_cast<float2*>(tiles + kBiasFrom);
  const LastGates<Epilogue> last{.gates = reinterpret_cast<typename Epilogue::Gates*>(tiles + kGatesFrom),
                                 .barrier = first + kGatesBarrier * 8};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), group = warp / kGroupWarps;
  if (threadIdx.x == 0) {
    stages.init_barriers(1, kCluster * kGroups * kGroupWarps);
    results.init_barriers(kGroupWarps, kGroupWarps);
    biases.init_barriers(kGroupThreads, 1);
    init_barrier(last.barrier, kGroupThreads);
    publish_barriers();
    prefetch_map(a);
  }
  __syncthreads();  // racecheck does not know that publish_barriers and a barrier of the cluster order this too
  if (warp == kGroups * kGroupWarps) {
    prefetch_second<Epilogue::kTransposedB>(b, shape);
  }
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  if (group < kGroups) {
    raise_registers<184>();
    // The second group is a step behind the first, so that it seldom has to wait for the first before it loads.
    const Bringer<Epilogue::kTransposedB> bringer{
        .a = a, .b = b, .shape = shape, .on = warp == kGroupWarps, .stages = stages, .tile = shape.first()};
    await_previous();
    multiply_tiles(stages, results, biases, bringer, bias, last, epilogue, shape, {.group = group, .thread = thread});
  } else {
    lower_registers<136>();
    await_previous();
    finish_tiles(results, biases, bias, last, epilogue, shape, thread);
  }
  wait_for_cluster();  // no block exits while another may still write to its shared memory
#endif
}

template <class Epilogue>
void run_product(const View& result, const ConstView& a, const ConstView& w, const Epilogue& epilogue, int processors,
                 cudaStream_t stream) {
  const auto kernel = fused_product_kernel<Epilogue>;
  Shape shape{};
  shape.row_tiles = static_cast<int>(divide_up(result.rows, kCluster * kTileRows));
  shape.column_tiles = static_cast<int>(divide_up(result.cols, kTileCols));
  shape.tiles = shape.row_tiles * shape.column_tiles;
  shape.band = shape.column_tiles <= Shape::kNarrow ? 1 : Shape::kWideBand;
  shape.steps = static_cast<int>(a.cols / kDepth);
  const CUtensorMap map_a = map_of<typename Epilogue::Type>(a, kTileRows);
  const CUtensorMap map_b = map_of<typename Epilogue::Type>(w, Epilogue::kTransposedB ? kDepth : kTileCols / kCluster);
  const int clusters = std::min(shape.tiles, processors / kCluster);
  launch("fused_product_kernel", kernel, {clusters * kCluster, kThreads, kSharedBytes, stream, kCluster}, map_a, map_b,
         epilogue, shape);
}

}  // namespace

void fused_forward(const View& y, const ConstView& x, const ConstView& w, const ConstView& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream) {
  run_product(y, x, w,
              DropoutEpilogue<Bf16>{.y = data<Bf16>(y),
                                    .gate = data<uint8_t>(gate),
                                    .bias = data<Bf16>(bias),
                                    .y_stride = y.stride,
                                    .gate_stride = gate.stride * 4,
                                    .rows = static_cast<int>(y.rows),
                                    .cols = static_cast<int>(y.cols),
                                    .dropout = dropout},
              processors, stream);
}

void fused_backward(const View& dx, const ConstView& dy, const ConstView& w, const ConstView& gate, float scale,
                    float* partial, int processors, cudaStream_t stream) {
  run_product(dx, dy, w,
              GateEpilogue<Bf16>{.dx = data<Bf16>(dx),
                                 .gate = data<uint8_t>(gate),
                                 .partial = partial,
                                 .dx_stride = dx.stride,
                                 .gate_stride = gate.stride * 4,
                                 .rows = static_cast<int>(dx.rows),
                                 .cols = static_cast<int>(dx.cols),
                                 .scale = scale},
              processors, stream);
}

void fused_exponentials(const View& y, const ConstView& x, const ConstView& w, const ExponentialRows<Bf16>& rows,
                        int processors, cudaStream_t stream) {
  run_product(y, x, w,
              ExponentialEpilogue<Bf16>{.y = data<Bf16>(y),
                                        .y_stride = y.stride,
                                        .rows = static_cast<int>(y.rows),
                                        .cols = static_cast<int>(y.cols),
                                        .of = rows},
              processors, stream);
}

int64_t fused_parts(int64_t rows) { return divide_up(rows, kCluster * kTileRows) * kCluster * kGroups; }

}  // namespace tandem::backend::cuda
