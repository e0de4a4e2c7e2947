// What attention's forward and backward share: tiles in shared memory, products of 16 rows a warp. Which block has
// which sentence: attention_slots.cuh.
//
// Keys lie permuted in shared memory: of 32 keys, key 8 t + 2 j + e is row 8 j + 2 t + e. So lane t of a quad holds, in
// the columns 2t, 2t + 1 of four neighbouring blocks j of scores, the eight keys 8 t .. 8 t + 7: one group of dropout
// lanes, block j's pair being word j.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "backend/cuda/attention_slots.cuh"
#include "backend/cuda/mma.cuh"

namespace tandem::cuda {

constexpr int kKeyStep = 32;  // keys whose order is permuted among themselves

// Row of a key in its tile, and the other way round. Bits change places: permuted(a + b) = permuted(a) + permuted(b)
// where a and b have no bit in common.
__host__ __device__ constexpr int permuted(int key) {
  return (key & ~31) | ((key >> 1 & 3) << 3) | ((key >> 3 & 3) << 1) | (key & 1);
}

template <class T>
__host__ __device__ constexpr T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

// bf16 in device memory: row r, first column of a head.
struct Matrix {
  Bf16* data = nullptr;
  int stride = 0;

  Matrix() = default;
  explicit Matrix(const View& view) : data(cuda::data<Bf16>(view)), stride(static_cast<int>(view.stride)) {
    require(view.stride <= INT32_MAX / 64, "attention on a GPU takes rows at most {} elements apart, not {}",
            INT32_MAX / 64, view.stride);
  }
  __device__ Bf16* at(int row, int column) const { return data + int64_t{row} * stride + column; }
};

// Calls launch.operator()<columns of a head, rounded up, dropout, vectors>(); vectors: accesses of 16 bytes are
// possible in all of the matrices.
template <class Launch>
void for_width(const AttentionArguments& a, std::initializer_list<View> matrices, const Launch& launch) {
  const bool dropout = a.dropout.on(), vectors = a.width % 8 == 0 && std::ranges::all_of(matrices, vectors_of_8);
  const auto with = [&]<int kWidth>() {
    if (vectors) {
      dropout ? launch.template operator()<kWidth, true, true>() : launch.template operator()<kWidth, false, true>();
    } else {
      dropout ? launch.template operator()<kWidth, true, false>() : launch.template operator()<kWidth, false, false>();
    }
  };
  const int width = a.width;
  if (width <= 16) {
    with.template operator()<16>();
  } else if (width <= 32) {
    with.template operator()<32>();
  } else if (width <= 64) {
    with.template operator()<64>();
  } else {
    with.template operator()<128>();
  }
}

// ---- tiles in shared memory: rows of kWidth columns, kPitch apart so that eight rows lie in different banks

template <int kWidth>
constexpr int kPitch = kWidth + 8;

// Where `where` holds, without a branch around it: 16 bytes to an address in shared memory, zeros where !present; done
// after a wait.
__device__ inline void copy_async(uint32_t to, const void* from, bool present, bool where) {
  asm volatile(
      "{\n"
      ".reg .pred where;\n"
      "setp.ne.b32 where, %3, 0;\n"
      "@where cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
      "}" ::"r"(to),
      "l"(from), "r"(present ? 16 : 0), "r"(static_cast<int>(where))
      : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending groups of this thread's copies are not done.
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

constexpr int kAllRows = INT32_MAX;

// Rows [0, filled) of a tile of kRows rows from a head's columns of a matrix, (row, column) being the tile's first
// element; zeros from row `count` and from column `width` on. By kTeam threads. kKeys: in the keys' order. Addresses
// are worked out once, not for each copy: that would be a fifth of the instructions of a short sentence.
template <int kWidth, bool kKeys, bool kVectors, int kTeam, int kRows>
__device__ void load_tile(Bf16* tile, const Matrix& from, int row, int column, int count, int filled, int width,
                          unsigned thread) {
  constexpr unsigned kChunks = kWidth / 8;
  constexpr int kStep = kTeam / kChunks;  // rows at a time
  const int own = static_cast<int>(thread / kChunks), first = static_cast<int>(thread % kChunks * 8);
  const int left = first < width ? count - own : 0, end = filled - own;
  Bf16* to = tile + (kKeys ? permuted(own) : own) * kPitch<kWidth> + first;
  const Bf16* source = from.at(row + own, column + first);
  if constexpr (kVectors) {
    const auto step = static_cast<uint32_t>(from.stride * sizeof(Bf16));
    uint32_t address = shared_of(to);
    asm volatile("" : "+r"(address), "+l"(source));
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      copy_async(address + (kKeys ? permuted(i) : i) * kPitch<kWidth> * sizeof(Bf16),
                 reinterpret_cast<const char*>(source) + uint64_t{step} * i, i < left, i < end);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < min(end, kRows); i += kStep) {
      for (int e = 0; e < 8; ++e) {
        to[(kKeys ? permuted(i) : i) * kPitch<kWidth> + e] =
            i < left && first + e < width ? source[int64_t{i} * from.stride + e] : __float2bfloat16_rn(0.0F);
      }
    }
  }
}

// ---- products

// scores [16, 32] += rows [16, kWidth] columns', for 32 rows of a tile of keys or values.
template <int kWidth>
__device__ void multiply_by_keys(float (&scores)[4][4], const Bf16* rows, const Bf16* columns) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const Bf16* a = rows + (lane % 16) * kPitch<kWidth> + lane / 16 * 8;
  const Bf16* b = columns + (lane % 8 + lane / 16 * 8) * kPitch<kWidth> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    const Fragment left = load_fragment(a + k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Fragment right = load_fragment(b + 16 * half * kPitch<kWidth> + k);
      multiply(scores[2 * half], left, right.r[0], right.r[1]);
      multiply(scores[2 * half + 1], left, right.r[2], right.r[3]);
    }
  }
}

// sums [16, kWidth] += left [16, 16] right, for 16 rows of a tile.
template <int kWidth>
__device__ void multiply_by_rows(float (&sums)[kWidth / 8][4], const Fragment& left, const Bf16* right) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const Bf16* b = right + (lane % 16) * kPitch<kWidth> + lane / 16 * 8;
#pragma unroll
  for (int n = 0; n < kWidth / 16; ++n) {
    const Fragment f = load_fragment_transposed(b + 16 * n);
    multiply(sums[2 * n], left, f.r[0], f.r[1]);
    multiply(sums[2 * n + 1], left, f.r[2], f.r[3]);
  }
}

__device__ inline float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}
__device__ inline float most_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}

// ---- results

// A warp's sums [16, kWidth], rows g times factors[0] and rows g + 8 times factors[1], go by way of `slab` (16 rows of
// shared memory of this warp's own) to the head's columns of a matrix, (row, column) being the tile's first element.
// They are the tile's rows first .. first + 15; those of keys or queries from `count` on are not written.
template <int kWidth, bool kKeys, bool kVectors>
__device__ void store_rows(const Matrix& to, int row, int column, int first, int count, Bf16* slab,
                           const float (&sums)[kWidth / 8][4], float2 factors, int width) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  __syncwarp();
  Bf16* mine = slab + lane / 4 * kPitch<kWidth> + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n) {
    *reinterpret_cast<uint32_t*>(mine + 8 * n) = pack(sums[n][0] * factors.x, sums[n][1] * factors.x);
    *reinterpret_cast<uint32_t*>(mine + 8 * kPitch<kWidth> + 8 * n) =
        pack(sums[n][2] * factors.y, sums[n][3] * factors.y);
  }
  __syncwarp();
  constexpr int kChunks = kWidth / 8;
  constexpr int kStep = kWarp / kChunks;  // rows at a time
  const int own = lane / kChunks, at = lane % kChunks * 8;
  const auto step = static_cast<uint32_t>(to.stride * sizeof(Bf16));
  const int position = kKeys ? permuted(first + own) : first + own;
  const int left = at < width ? count - position : 0;
  const Bf16* source = slab + own * kPitch<kWidth> + at;
  Bf16* target = to.at(row + position, column + at);
#pragma unroll
  for (int i = 0; i < 16; i += kStep, source += kStep * kPitch<kWidth>) {
    const int further = kKeys ? permuted(i) : i;
    if (further < left) {
      Bf16* const there = reinterpret_cast<Bf16*>(reinterpret_cast<char*>(target) + uint64_t{step} * further);
      if constexpr (kVectors) {
        *reinterpret_cast<uint4*>(there) = *reinterpret_cast<const uint4*>(source);
      } else {
        for (int e = 0; e < min(8, width - at); ++e) {
          there[e] = source[e];
        }
      }
    }
  }
}

// Zeros in a head's columns of `count` rows, (row, column) being the first element. By kTeam threads.
template <bool kVectors, int kTeam>
__device__ void clear_rows(const Matrix& to, int row, int column, int count, int width) {
  constexpr int kUnit = kVectors ? 8 : 1;
  const int units = width / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < count * units; i += kTeam) {
    Bf16* target = to.at(row + i / units, column + i % units * kUnit);
    if constexpr (kVectors) {
      *reinterpret_cast<uint4*>(target) = uint4{0, 0, 0, 0};
    } else {
      *target = __float2bfloat16_rn(0.0F);
    }
  }
}

}  // namespace tandem::cuda
