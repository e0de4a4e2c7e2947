// Blocks of 128 x 256 sums, as many as there are processors. One warp asks the copy engine for tiles of 64 columns of
// both factors, four stages ahead; two groups of four warps multiply, each 64 of the 128 rows. The second group runs
// kLead stages behind the first, so that one multiplies while the other finishes its tile.
#include "backend/cuda/fused_epilogue.cuh"
#include "backend/cuda/fused_product.h"

namespace tandem::cuda {

namespace {

constexpr int kGroups = 2;  // that multiply; one more brings the tiles
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kTileRows = 64 * kGroups;
constexpr int kDepth = 64;  // of a stage: one row of the swizzle, 128 bytes
constexpr int kStages = 4;
constexpr int kCluster = 2;  // blocks, one below the other, that share the second factor's tiles: each brings a part
constexpr uint32_t kBytesA = kTileRows * kDepth * sizeof(Bf16);
constexpr uint32_t kBytesB = kTileCols * kDepth * sizeof(Bf16);
constexpr uint32_t kStageBytes = kBytesA + kBytesB;
constexpr uint32_t kPatternBytes = 1024;
constexpr size_t kSharedBytes = kPatternBytes + kStages * kStageBytes + kGroups * kGroupWarps * kChunkBytes +
                                kGroups * kGroupFloats * sizeof(float);

struct Shape {
  int tiles, column_tiles, steps;  // tiles: of a cluster; steps: of kDepth

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Of this block's part of a tile.
  __device__ int row(int tile) const { return (tile / column_tiles * kCluster + blockIdx.x % kCluster) * kTileRows; }
  __device__ int col(int tile) const { return tile % column_tiles * kTileCols; }
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kLead = 2;  // stages

// Stages of shared memory that are filled and emptied in turn.
struct Ring {
  uint32_t tiles, full, empty;  // shared addresses; barriers: one a stage
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint32_t tile() const { return tiles + stage * kStageBytes; }
  __device__ uint32_t full_now() const { return full + stage * 8; }
  __device__ uint32_t empty_now() const { return empty + stage * 8; }
  __device__ void advance() {
    stage = stage == kStages - 1 ? 0 : stage + 1;
    parity ^= stage == 0 ? 1 : 0;
  }
};

// The block's part of a stage of the second factor, for all blocks of the cluster.
template <bool kTransposedB>
__device__ void bring_second(const Ring& ring, const CUtensorMap& b, int col, int step) {
  constexpr int kPart = kTileCols / kCluster;
  constexpr uint16_t kAll = (1 << kCluster) - 1;
  const int first = static_cast<int>(rank_in_cluster()) * kPart;
  const uint32_t to = ring.tile() + kBytesA + first * kDepth * sizeof(Bf16);
  if constexpr (kTransposedB) {
#pragma unroll
    for (int i = 0; i < kPart; i += kDepth) {
      load_box_to(to + i * kDepth * sizeof(Bf16), b, step * kDepth, col + first + i, ring.full_now(), kAll);
    }
  } else {
    load_box_to(to, b, col + first, step * kDepth, ring.full_now(), kAll);
  }
}

template <bool kTransposedB>
__device__ void bring_tiles(Ring ring, const CUtensorMap& a, const CUtensorMap& b, const Shape& shape) {
  for (int tile = blockIdx.x / kCluster; tile < shape.tiles; tile += gridDim.x / kCluster) {
    for (int step = 0; step < shape.steps; ++step) {
      wait_barrier(ring.empty_now(), ring.parity ^ 1);
      arrive_and_expect(ring.full_now(), kStageBytes);
      load_box(ring.tile(), a, shape.row(tile), step * kDepth, ring.full_now());
      bring_second<kTransposedB>(ring, b, shape.col(tile), step);
      ring.advance();
    }
  }
}

// sums = the group's 64 rows of the tile's product. After `lead` steps the other group may begin (0: it has).
template <bool kTransposedB>
__device__ void multiply_tile(float (&sums)[128], Ring& ring, int group, int lane, int steps, int lead) {
  constexpr uint32_t kStepA = 32, kStepB = kTransposedB ? 16 * 128 : 32;  // bytes, for 16 of the inner dimension
  uint32_t used = 0;                                                      // barrier of the stage before
  for (int step = 0; step < steps; ++step) {
    wait_barrier(ring.full_now(), ring.parity);
    const uint64_t a = tile_descriptor(ring.tile() + group * (kBytesA / kGroups), 16);
    const uint64_t b = tile_descriptor(ring.tile() + kBytesA, kTransposedB ? kBytesB / 4 : 16);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      multiply_64x256<kTransposedB>(sums, a + descriptor_step(i * kStepA), b + descriptor_step(i * kStepB),
                                    step > 0 || i > 0);
    }
    commit_products();
    wait_products<1>();
    if (step > 0 && lane < kCluster) {
      arrive_at(used, lane);
    }
    used = ring.empty_now();
    ring.advance();
    if (step + 1 == lead) {
      arrive_threads_of(kGroups + 1, kGroups * kGroupThreads);
    }
  }
  wait_products<0>();
  settle(sums);
  if (lane < kCluster) {
    arrive_at(used, lane);
  }
}

template <class Epilogue>
__device__ void make_tiles(Ring ring, const Epilogue& epilogue, const Shape& shape, Place place) {
  int lead = place.group == 0 ? min(kLead, shape.steps) : 0;
  if (kLead > 0 && place.group > 0) {
    sync_threads_of(kGroups + 1, kGroups * kGroupThreads);
  }
  const auto constants = epilogue.constants();
  for (int tile = blockIdx.x / kCluster; tile < shape.tiles; tile += gridDim.x / kCluster) {
    place.part = shape.row(tile) / 64 + place.group;
    place.row = place.part * 64 + place.warp() * 16;
    place.col = shape.col(tile);
    const auto ahead = epilogue.fetch(place);
    float sums[128];
    multiply_tile<Epilogue::kTransposedB>(sums, ring, place.group, place.lane, shape.steps, lead);
    epilogue.finish(sums, ahead, constants, place);
    place.parity ^= 1;
    lead = 0;
  }
}

#endif

template <class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    fused_product_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                         const Epilogue epilogue, const Shape shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ uint64_t barriers[2 * kStages];
  extern __shared__ uint8_t shared[];
  uint8_t* const tiles = shared + (kPatternBytes - shared_of(shared) % kPatternBytes) % kPatternBytes;
  const Ring ring{.tiles = shared_of(tiles), .full = shared_of(barriers), .empty = shared_of(barriers + kStages)};
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / kWarp, 0), group = warp / kGroupWarps;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(ring.full + i * 8, 1);
      init_barrier(ring.empty + i * 8, kCluster * kGroups * kGroupWarps);
    }
    publish_barriers();
  }
  sync_cluster();
  if (group == kGroups) {
    lower_registers<40>();
    if (threadIdx.x == kGroups * kGroupThreads) {
      prefetch_map(a);
      prefetch_map(b);
      bring_tiles<Epilogue::kTransposedB>(ring, a, b, shape);
    }
  } else {
    raise_registers<232>();
    uint8_t* const chunks = tiles + kStages * kStageBytes;
    float* const floats = reinterpret_cast<float*>(chunks + kGroups * kGroupWarps * kChunkBytes);
    make_tiles(ring, epilogue, shape,
               {.parity = 0,
                .group = group,
                .thread = static_cast<int>(threadIdx.x) % kGroupThreads,
                .lane = static_cast<int>(threadIdx.x) % kWarp,
                .chunk = shared_of(chunks) + warp * kChunkBytes,
                .floats = floats + group * kGroupFloats});
  }
  sync_cluster();  // no block goes while another may still write to its shared memory
#endif
}

// How the copy engine sees a matrix: in boxes of `rows` rows and 64 columns.
CUtensorMap map_of(const View& view, int rows) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
  require(found == cudaDriverEntryPointSuccess, "the NVIDIA driver has no cuTensorMapEncodeTiled");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(view.rows)};
  const cuuint64_t stride = static_cast<cuuint64_t>(view.stride) * sizeof(Bf16);
  const cuuint32_t box[] = {kDepth, static_cast<cuuint32_t>(rows)}, steps[] = {1, 1};
  CUtensorMap map;
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, view.data, sizes, &stride, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, "the GPU's driver does not take a matrix of {} x {}, stride {}: error {}", view.rows,
          view.cols, view.stride, static_cast<int>(status));
  return map;
}

template <class Epilogue>
void launch(const View& result, const View& a, const View& w, const Epilogue& epilogue, int processors,
            cudaStream_t stream) {
  const auto kernel = fused_product_kernel<Epilogue>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "asking for shared memory");
  Shape shape{};
  shape.column_tiles = static_cast<int>(divide_up(result.cols, kTileCols));
  shape.tiles = static_cast<int>(divide_up(result.rows, kCluster * kTileRows)) * shape.column_tiles;
  shape.steps = static_cast<int>(a.cols / kDepth);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(std::min(shape.tiles, processors / kCluster) * kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  const CUtensorMap map_a = map_of(a, kTileRows);
  const CUtensorMap map_b = map_of(w, Epilogue::kTransposedB ? kDepth : kTileCols / kCluster);
  check(cudaLaunchKernelEx(&config, kernel, map_a, map_b, epilogue, shape), "fused_product_kernel");
  check_launch("fused_product_kernel");
}

}  // namespace

bool fused_product_possible(const View& result, const View& a, const View& w, const View& gate) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, fused_product_kernel<DropoutEpilogue>), "reading a kernel's attributes");
  const bool compiled = attributes.sharedSizeBytes > 0;  // else its body was left out: not for this GPU
  const auto fits = [](const View& view) { return vectors_of_8(view) && view.cols % kDepth == 0; };
  const bool gate_fits = gate.empty() || (reinterpret_cast<uintptr_t>(gate.data) % 8 == 0 && gate.stride % 2 == 0);
  return compiled && fits(result) && fits(a) && fits(w) && gate_fits && result.rows < INT32_MAX / 2;
}

void fused_forward(const View& y, const View& x, const View& w, const View& bias, const View& gate,
                   const DropoutArguments& dropout, int processors, cudaStream_t stream) {
  launch(y, x, w,
         DropoutEpilogue{.y = data<Bf16>(y),
                         .gate = data<uint8_t>(gate),
                         .bias = data<Bf16>(bias),
                         .y_stride = y.stride,
                         .gate_stride = gate.stride * 4,
                         .rows = static_cast<int>(y.rows),
                         .cols = static_cast<int>(y.cols),
                         .dropout = dropout},
         processors, stream);
}

void fused_backward(const View& dx, const View& dy, const View& w, const View& gate, float scale, float* partial,
                    int processors, cudaStream_t stream) {
  launch(dx, dy, w,
         GateEpilogue{.dx = data<Bf16>(dx),
                      .gate = data<uint8_t>(gate),
                      .partial = partial,
                      .dx_stride = dx.stride,
                      .gate_stride = gate.stride * 4,
                      .rows = static_cast<int>(dx.rows),
                      .cols = static_cast<int>(dx.cols),
                      .scale = scale},
         processors, stream);
}

int64_t fused_parts(int64_t rows) { return divide_up(rows, kCluster * kTileRows) * kCluster * kGroups; }

}  // namespace tandem::cuda
