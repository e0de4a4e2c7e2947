// Tensor cores: fragments in registers and their products (mma.m16n8k16: 16-bit numbers in, f32 sums).
//
// Lane 4 g + t of a warp holds the elements (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1) of a 16 x 8 block
// of sums.
#pragma once

#include "backend/cuda/device.cuh"

namespace tandem::backend::cuda {

struct Fragment {
  uint32_t r[4];
};

// Loads four 8 x 8 blocks; lane 8 i + j gives the address of row j of block i. Of each block, lane 4 g + t receives
// columns 2t, 2t + 1 of row g or, if transposed, rows 2t, 2t + 1 of column g.
__device__ inline Fragment load_fragment(uint32_t at) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(at)
               : "memory");
  return f;
}
__device__ inline Fragment load_fragment_transposed(uint32_t at) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(at)
               : "memory");
  return f;
}

// Stores a fragment, not transposed.
__device__ inline void store_fragment(uint32_t at, const Fragment& f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(f.r[0]), "r"(f.r[1]),
               "r"(f.r[2]), "r"(f.r[3])
               : "memory");
#else
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  for (int i = 0; i < 4; ++i) {
    const uint32_t row = __shfl_sync(0xFFFFFFFF, at, 8 * i + lane / 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + lane % 4 * 4), "r"(f.r[i]) : "memory");
  }
#endif
}

// sums [16, 8] += a [16, 16] b [16, 8], b in two halves of its rows.
template <class H>
__device__ void multiply(float (&sums)[4], const Fragment& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1), "C"(Half<H>::kName));
}

// These are as exact as exp2_fast.
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tandem::backend::cuda
