// Hopper's own instructions (sm_90a): barriers in shared memory, the copy engine, products by a group of four warps.
//
// Addresses of shared memory are 32-bit (shared_of). Tiles lie as the copy engine writes them with its 128-byte
// swizzle: rows of 64 numbers of 16 bits; eight rows are a pattern of 1,024 bytes, which is aligned to 1,024.
#pragma once

#include "backend/cuda/device.cuh"

namespace tandem::backend::cuda {

inline decltype(&cuTensorMapEncodeTiled) find_map_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
  require(found == cudaDriverEntryPointSuccess, "the NVIDIA driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

// The copy engine's view of a matrix: boxes of `rows` rows and 64 columns.
template <class H>
CUtensorMap map_of(const ConstView& view, int rows) {
  static const auto encode = find_map_encoder();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(view.rows)};
  const cuuint64_t stride = static_cast<cuuint64_t>(view.stride) * kHalfBytes;
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(rows)}, steps[] = {1, 1};
  CUtensorMap map;
  const CUresult status = encode(&map, Half<H>::kMapType, 2, const_cast<void*>(view.data), sizes, &stride, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, "the GPU's driver does not take a matrix of {} x {}, stride {}: error {}", view.rows,
          view.cols, view.stride, static_cast<int>(status));
  return map;
}

static __global__ void empty_kernel() {}

// Whether a kernel with barriers in shared memory can run on this GPU: on others its body is left out, and it takes no
// more than the driver's own share of that memory.
template <class... Parameters>
bool has_body(void (*kernel)(Parameters...)) {
  const auto shared = [](auto* k) { return attributes_of(reinterpret_cast<const void*>(k)).sharedSizeBytes; };
  return shared(kernel) > shared(empty_kernel);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---- barriers: 8 bytes each. A phase ends with the last arrival and the last byte that was announced.
__device__ inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Called before the block's first synchronisation, in the thread that initialised the barriers.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// All lanes of a warp call this; one of them arrives.
__device__ inline void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xFFFFFFFF;\n"
      "@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
      "}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
// Waits until the phase with this parity has ended; before the first phase, parity 1 counts as ended. kOfCluster: other
// blocks of the cluster wrote what is waited for.
template <bool kOfCluster = false>
__device__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  static constexpr char kBlock[] = "", kCluster[] = ".acquire.cluster";
  uint32_t done = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity%3.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity), "C"(kOfCluster ? kCluster : kBlock)
        : "memory");
  } while (done == 0);
}

// Slots of kBytes of shared memory that are filled and emptied in turn.
template <int kSlots, uint32_t kBytes>
struct Ring {
  uint32_t slots, full, empty;  // addresses; there is a full and an empty barrier for each slot
  int slot = 0;
  uint32_t parity = 0;

  __device__ void init_barriers(int fills, int empties) const {  // numbers of arrivals
    for (int i = 0; i < kSlots; ++i) {
      init_barrier(full + i * 8, fills);
      init_barrier(empty + i * 8, empties);
    }
  }
  __device__ uint32_t at() const { return slots + slot * kBytes; }
  __device__ uint32_t full_now() const { return full + slot * 8; }
  __device__ uint32_t empty_now() const { return empty + slot * 8; }
  __device__ void wait_full() const { wait_barrier(full_now(), parity); }
  __device__ void wait_empty() const { wait_barrier(empty_now(), parity ^ 1); }
  __device__ void advance() {
    slot = slot == kSlots - 1 ? 0 : slot + 1;
    parity ^= slot == 0 ? 1 : 0;
  }
};

// Arrives at the barrier at the same address in block `rank` of the cluster.
__device__ inline void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Sends 16 bytes to the same address in block `rank` of the cluster; the barrier at the same address there counts them.
__device__ inline void send_to(uint32_t to, uint32_t rank, float4 v, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mapa.shared::cluster.u32 remote_barrier, %6, %1;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%2, %3, %4, %5}, "
      "[remote_barrier];\n"
      "}" ::"r"(to),
      "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}
__device__ inline uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// A barrier of all threads of the cluster's blocks, in two halves. It orders nothing but publish_barriers.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// A barrier of all threads of the cluster's blocks.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// ---- the copy engine: one box of a matrix, beginning at (row, col); what lies outside the matrix reads as 0. All
// lanes of a warp call this with the same arguments and one of them makes the request: with a branch for that lane, the
// compiler gives up the registers that all lanes share, in the whole loop around it and between the products, too.
__device__ inline void load_box(uint32_t to, const CUtensorMap& map, int row, int col, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xFFFFFFFF;\n"
      "@one cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n"
      "}" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(barrier)
      : "memory");
}
// The same into all blocks of the cluster whose bits are set in `blocks`: same address, same barrier in each.
__device__ inline void load_box_to(uint32_t to, const CUtensorMap& map, int row, int col, uint32_t barrier,
                                   uint16_t blocks) {
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xFFFFFFFF;\n"
      "@one cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3}], [%4], %5;\n"
      "}" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
// Loads into the L2 cache only. This may come before await_previous: writes arrive in that cache, so nothing is stale.
__device__ inline void prefetch_box(const CUtensorMap& map, int row, int col) {
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xFFFFFFFF;\n"
      "@one cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];\n"
      "}" ::"l"(&map),
      "r"(col), "r"(row)
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- registers of the warps of one group
template <int kCount>
__device__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- products
// A tile in shared memory. If its rows run along the product's inner dimension, `leading` is not used; if they run
// along the other one, it is the distance in bytes from 64 columns to the next 64.
__device__ inline uint64_t tile_descriptor(uint32_t address, uint32_t leading) {
  constexpr uint64_t kPattern = 1024, kSwizzle128 = uint64_t{1} << 62;
  return (address & 0x3FFFF) >> 4 | uint64_t{leading >> 4} << 16 | kPattern >> 4 << 32 | kSwizzle128;
}
__device__ constexpr uint64_t descriptor_step(uint32_t bytes) { return bytes >> 4; }

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define TANDEM_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TANDEM_SUMS_16(i) TANDEM_SUMS_4(i), TANDEM_SUMS_4(i + 4), TANDEM_SUMS_4(i + 8), TANDEM_SUMS_4(i + 12)
#define TANDEM_SUMS_64(i) TANDEM_SUMS_16(i), TANDEM_SUMS_16(i + 16), TANDEM_SUMS_16(i + 32), TANDEM_SUMS_16(i + 48)

// sums [64, 256] = or += a [64, 16] b [16, 256]. In lane 4 g + t of warp w of the group, sums[4 j + i] is row 16 w + g
// (i < 2) or 16 w + g + 8 and column 8 j + 2 t + i % 2. b is given as [256, 16], transposed as [16, 256].
template <class H, bool kTransposedB>
__device__ void multiply_64x256(float (&sums)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.%132.%132\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, \n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, \n"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, \n"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, \n"
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, \n"
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, \n"
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, \n"
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, \n"
      "%128, %129, keeps, 1, 1, 0, %131;\n"
      "}"
      : TANDEM_SUMS_64(0), TANDEM_SUMS_64(64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposedB ? 1 : 0), "C"(Half<H>::kName));
}

// sums [64, 128] in the same way = or += a [64, 16] b [16, 128]; both are given transposed, as [16, 64] and [16, 128].
template <class H>
__device__ void multiply_64x128(float (&sums)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.%67.%67\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, \n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, \n"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, \n"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, \n"
      "%64, %65, keeps, 1, 1, 1, 1;\n"
      "}"
      : TANDEM_SUMS_64(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "C"(Half<H>::kName));
}

#undef TANDEM_SUMS_64
#undef TANDEM_SUMS_16
#undef TANDEM_SUMS_4

// Called after the wait, so that reads of the sums do not move before it.
template <int kCount>
__device__ void settle(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) {
    asm volatile("" : "+f"(sum)::"memory");
  }
}

#endif

}  // namespace tandem::backend::cuda
