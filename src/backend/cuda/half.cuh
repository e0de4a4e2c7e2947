// The 16-bit type that kernels compute in. It is their template parameter H, and what differs from type to type is
// here: conversions, pairs, and what instructions call it. Every kernel is instantiated for bf16 alone.
//
// A pair is two numbers in 32 bits, the first one in the lower half.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace tandem::backend::cuda {

using Bf16 = __nv_bfloat16;

constexpr uint32_t kHalfBytes = 2;

template <class H>
struct Half;

template <>
struct Half<Bf16> {
  using Pair = __nv_bfloat162;
  static constexpr char kName[] = "bf16";  // name in PTX
  static constexpr CUtensorMapDataType kMapType = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  static constexpr uint32_t kInfinity = 0x7F80;  // its bits; NaNs have more

  __device__ static float low(uint32_t pair) { return __uint_as_float(pair << 16); }
  __device__ static float high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000); }
  // The smaller (or larger) numbers of two pairs. NaN stays NaN.
  __device__ static uint32_t smaller(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  __device__ static uint32_t larger(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  // Sets all bits of the numbers that are not equal in both pairs, or NaN in one.
  __device__ static uint32_t differ(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("set.neu.u32.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  // Packs two floats; negative ones become 0.
  __device__ static uint32_t relu(float low, float high) {
    uint32_t result;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
  }

  __device__ static float2 floats(Pair pair) { return __bfloat1622float2(pair); }
  __device__ static Pair pair(float low, float high) { return __floats2bfloat162_rn(low, high); }
  __device__ static Pair twice(float value) { return __float2bfloat162_rn(value); }
  __device__ static Bf16 rounded(float value) { return __float2bfloat16_rn(value); }
  __device__ static Bf16 not_above(float value) { return __float2bfloat16_rd(value); }
  __device__ static uint16_t bits(Bf16 value) { return __bfloat16_as_ushort(value); }
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Bf16 value) { return __bfloat162float(value); }

// A float as T, which is a 16-bit type or float itself; rounded to nearest even.
template <class T>
__device__ T from_float(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    return Half<T>::rounded(value);
  }
}

template <class H>
__device__ uint32_t pack(float low, float high) {
  const auto both = Half<H>::pair(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Eight numbers.
template <class H>
struct alignas(16) Half8 {
  typename Half<H>::Pair pair[4];

  __device__ void unpack(float (&to)[8]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 both = Half<H>::floats(pair[i]);
      to[2 * i] = both.x;
      to[2 * i + 1] = both.y;
    }
  }
  __device__ static Half8 pack(const float (&from)[8]) {
    Half8 result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      result.pair[i] = Half<H>::pair(from[2 * i], from[2 * i + 1]);
    }
    return result;
  }
};

// Loads in one access of 16 bytes. (A copy of the struct goes pair by pair.)
template <class H>
__device__ Half8<H> load_vector(const void* from) {
  const uint4 bits = *static_cast<const uint4*>(from);
  Half8<H> vector;
  memcpy(static_cast<void*>(&vector), &bits, sizeof(bits));
  return vector;
}

template <class H>
__device__ void store_vector(void* to, const Half8<H>& vector) {
  uint4 bits;
  memcpy(&bits, &vector, sizeof(bits));
  *static_cast<uint4*>(to) = bits;
}

// Columns [col, col + 8) of a row of `cols`; in the vector form the caller promises that all eight are there and that
// the address is a multiple of 16. Otherwise absent columns read as 0 and are not written.
template <bool kVector, class H>
__device__ void load8(float (&to)[8], const H* row, int64_t col, int64_t cols) {
  if constexpr (kVector) {
    load_vector<H>(row + col).unpack(to);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i] = col + i < cols ? to_float(row[col + i]) : 0.0F;
    }
  }
}

// The same, packed.
template <bool kVector, class H>
__device__ Half8<H> load_packed(const H* row, int64_t col, int64_t cols) {
  if constexpr (kVector) {
    return load_vector<H>(row + col);
  } else {
    float values[8];
    load8<false>(values, row, col, cols);
    return Half8<H>::pack(values);
  }
}

template <bool kVector, class H>
__device__ void store8(H* row, int64_t col, int64_t cols, const float (&from)[8]) {
  if constexpr (kVector) {
    store_vector(row + col, Half8<H>::pack(from));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (col + i < cols) {
        row[col + i] = from_float<H>(from[i]);
      }
    }
  }
}

}  // namespace tandem::backend::cuda
