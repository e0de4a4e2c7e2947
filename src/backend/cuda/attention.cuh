// Shared by attention's forward and backward: tiles in shared memory, products of 16 rows per warp, and which block
// has which sentence.
//
// Keys are permuted in shared memory: of 32 keys, key 8 t + 2 j + e is row 8 j + 2 t + e. So lane t of a quad holds the
// eight keys 8 t .. 8 t + 7 in the columns 2t, 2t + 1 of four neighbouring blocks j of scores. These keys are one group
// of dropout lanes, and block j's pair is word j.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/mma.cuh"

namespace tandem::backend::cuda {

// ---- which block has which sentence
//
// The queries of each sentence are cut into tiles of kTile rows; a slot is one tile, and a block computes one head of
// it. A kernel of its own assigns the slots, the longest sentences first: their blocks take longest, and if one of them
// began last, all would wait for it. Empty slots come last. The number of slots must not depend on the starts, since a
// step is recorded: q.rows / kTile + sentences + 1 are always enough.

constexpr int kForwardTile = 32, kBackwardTile = 64;  // queries per block

// A tile of a sentence's queries. The rows past the last sentence are a sentence that does not attend.
struct alignas(16) Slot {
  int tile;                  // the slot is empty if the sentence has no such tile
  int attends;               // 1 if there are queries and keys and they belong to a sentence
  int first_query, queries;  // rows of the sentence
  int first_key, keys;
  int unused[2];
};

struct AttentionArguments {
  const Slot* slots;  // those of the kernel's tiles
  int slot_count;
  int heads, width;
  bool causal;
  float scale;       // 1 / sqrt(width)
  float scale_log2;  // scale * log2(e): 2^(scale_log2 * score) = e^(scale * score)
  DropoutArguments dropout;
};

// A plan holds the slots of the forward's tiles and then those of the backward's.
inline int64_t slots_of(int tile, const ConstView& query_starts, int64_t query_rows) {
  return query_rows / tile + query_starts.cols;
}

// Makes a plan if the shape has none. tile: the kernel's tile size.
AttentionArguments attention_arguments(CudaBackend& gpu, const AttentionShape& shape, int tile, const ConstView& q,
                                       const ConstView& k);

// The grid (heads, slots), with the slots in two dimensions.
inline Grid attention_blocks(const AttentionArguments& a) {
  const int64_t down = std::min<int64_t>(a.slot_count, 1 << 15);
  return {a.heads, down, divide_up(a.slot_count, down)};
}

__device__ inline int head_of_block() { return static_cast<int>(blockIdx.x); }

// Called in all threads of a block of that grid before await_previous: prefetches the plan into the L2 cache, a wave of
// blocks ahead of its use. The plan is as old as the pass and may have left the cache.
__device__ inline void fetch_slots_ahead(const AttentionArguments& a) {
  constexpr int kAhead = 160;
  const auto slot = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  if (head_of_block() == 0 && threadIdx.x < 2) {
    const int ahead = min(slot + static_cast<int>(threadIdx.x) * kAhead, a.slot_count - 1);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.slots + ahead));
  }
}

__device__ inline Slot slot_of_block(const AttentionArguments& a) {
  const auto slot = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  const auto* from = reinterpret_cast<const int4*>(a.slots + min(slot, a.slot_count - 1));
  const int4 x = from[0], y = from[1];
  return {slot < a.slot_count ? x.x : INT32_MAX / 128, x.y, x.z, x.w, y.x, y.y, {}};
}

// ---- sizes and matrices

constexpr int kKeyStep = 32;  // keys whose order is permuted among themselves

// Row of a key in its tile, and key of a row. Bits swap places, so permuted(a + b) = permuted(a) + permuted(b) if a and
// b have no bit in common.
__host__ __device__ constexpr int permuted(int key) {
  return (key & ~31) | ((key >> 1 & 3) << 3) | ((key >> 3 & 3) << 1) | (key & 1);
}

template <class T>
__host__ __device__ constexpr T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

// A matrix in device memory.
template <class H>
struct Matrix {
  H* data = nullptr;
  int stride = 0;

  Matrix() = default;
  // The view may be an output or an input; the kernel must not write to an input.
  explicit Matrix(const ConstView& view)
      : data(const_cast<H*>(cuda::data<H>(view))), stride(static_cast<int>(view.stride)) {
    require(view.stride <= INT32_MAX / 64, "attention on a GPU takes rows at most {} elements apart, not {}",
            INT32_MAX / 64, view.stride);
  }
  __device__ H* at(int row, int column) const { return data + int64_t{row} * stride + column; }
};

// Columns of a head.
inline int head_width(const ConstView& q, int heads) {
  const int64_t width = q.cols / heads;
  require(width >= 1 && width <= kWidestHead, "attention on a GPU takes heads of 1 to {} columns, not of {}",
          kWidestHead, width);
  return static_cast<int>(width);
}

// Calls body.operator()<columns of a head, rounded up>().
template <class Body>
void with_width(int width, const Body& body) {
  width <= 16   ? body.template operator()<16>()
  : width <= 32 ? body.template operator()<32>()
  : width <= 64 ? body.template operator()<64>()
                : body.template operator()<128>();
}

// Calls launch.operator()<columns of a head, rounded up, dropout, vectors>(); vectors: all of the matrices allow
// accesses of 16 bytes.
template <class Launch>
void for_width(const AttentionArguments& a, std::initializer_list<ConstView> matrices, const Launch& launch) {
  const bool dropout = a.dropout.on(), vectors = a.width % 8 == 0 && std::ranges::all_of(matrices, vectors_of_8);
  with_width(a.width, [&]<int kWidth>() {
    if (vectors) {
      dropout ? launch.template operator()<kWidth, true, true>() : launch.template operator()<kWidth, false, true>();
    } else {
      dropout ? launch.template operator()<kWidth, true, false>() : launch.template operator()<kWidth, false, false>();
    }
  });
}

// ---- tiles in shared memory: rows of kWidth columns in pieces of 16 bytes, aligned to 128 bytes. There is no gap
// between rows: copying a row that crosses a multiple of 128 bytes reads a sector twice (with rows 144 bytes apart,
// half as much again came from the L2 cache). Instead, the pieces of a row swap places, so that the same piece of eight
// rows lies in different banks.

template <int kWidth>
constexpr int kRowBytes = kWidth* static_cast<int>(kHalfBytes);

// XORed with the byte offsets of a row's pieces. flipped(a + b) = flipped(a) ^ flipped(b) if a and b have no bit in
// common; it is 0 in every 16th row.
template <int kWidth>
__device__ constexpr int flipped(int row) {
  constexpr int kPieces = kWidth / 8;
  return (kPieces >= 8 ? row % 8 : row / (8 / kPieces) % kPieces) * 16;
}
template <int kWidth>
__device__ constexpr int place(int row, int piece) {
  return row * kRowBytes<kWidth> + (piece * 16 ^ flipped<kWidth>(row));
}

// Keeps the value in a register, so that it is not computed again.
__device__ inline void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }
template <class H>
__device__ void keep(const H*& value) {
  asm volatile("" : "+l"(value));
}

// Predicated: copies 16 bytes to an address in shared memory only if `where`, without branching; zeros if !present.
// The copy is complete after a wait.
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
// Waits until at most kPending groups of this thread's copies are pending.
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The rows and the eight columns of a tile that one of kTeam threads copies: one piece of every kStep-th row.
template <int kWidth, int kTeam>
struct OwnPiece {
  static constexpr int kPieces = kWidth / 8, kStep = kTeam / kPieces;
  int row, piece;

  __device__ explicit OwnPiece(unsigned thread)
      : row(static_cast<int>(thread) / kPieces), piece(static_cast<int>(thread) % kPieces) {}
};

// Copies one piece of every kStep-th row of a tile of kRows rows; the first of them goes from `from` to `further` bytes
// past `to`. From there on, `left` rows and `columns` columns are present; the rest becomes zeros, and rows from `end`
// on are not written. kKeys: in the keys' order.
template <int kWidth, bool kKeys, bool kVectors, int kRows, int kStep, class H>
__device__ void copy_rows(uint32_t to, const H* from, int stride, int left, int columns, int end = kRows,
                          uint32_t further = 0) {
  const auto step = static_cast<uint32_t>(stride * sizeof(H));
  const int present = columns > 0 ? left : 0;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    const int row = kKeys ? permuted(i) : i;
    const uint32_t target = (to ^ flipped<kWidth>(row)) + row * kRowBytes<kWidth> + further;
    const auto* source = reinterpret_cast<const H*>(reinterpret_cast<const char*>(from) + uint64_t{step} * i);
    if constexpr (kVectors) {
      copy_async(target, source, i < present, i < end);
    } else if (i < end) {
      auto* there = static_cast<H*>(__cvta_shared_to_generic(target));
      for (int e = 0; e < 8; ++e) {
        there[e] = i < present && e < columns ? source[e] : from_float<H>(0.0F);
      }
    }
  }
}

// ---- products

// The place of this lane's piece in 16 rows of a tile: for a left factor, or a right one that is transposed when it is
// loaded; and (keys_of_lane) for the right factor of scores.
template <int kWidth>
__device__ uint32_t rows_of_lane() {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  return place<kWidth>(lane % 16, lane / 16);
}
template <int kWidth>
__device__ uint32_t keys_of_lane() {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  return place<kWidth>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

// scores [16, 32] += rows [16, kWidth] columns', for 32 rows of a tile of keys or values; this lane's pieces of both
// factors lie `further` bytes past the addresses given.
template <class H, int kWidth>
__device__ void multiply_by_keys(float (&scores)[4][4], uint32_t rows, uint32_t columns, uint32_t further = 0) {
#pragma unroll
  for (uint32_t i = 0; i < kRowBytes<kWidth>; i += 32) {
    const Fragment left = load_fragment((rows ^ i) + further);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Fragment right = load_fragment((columns ^ i) + 16 * half * kRowBytes<kWidth> + further);
      multiply<H>(scores[2 * half], left, right.r[0], right.r[1]);
      multiply<H>(scores[2 * half + 1], left, right.r[2], right.r[3]);
    }
  }
}

// sums [16, kWidth] += left [16, 16] right, for 16 rows of a tile; this lane's piece is `further` bytes past `right`.
template <class H, int kWidth>
__device__ void multiply_by_rows(float (&sums)[kWidth / 8][4], const Fragment& left, uint32_t right,
                                 uint32_t further = 0) {
#pragma unroll
  for (int n = 0; n < kWidth / 16; ++n) {
    const Fragment f = load_fragment_transposed((right ^ 32 * n) + further);
    multiply<H>(sums[2 * n], left, f.r[0], f.r[1]);
    multiply<H>(sums[2 * n + 1], left, f.r[2], f.r[3]);
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

// Writes a warp's sums [16, kWidth], rows g times factors.x and rows g + 8 times factors.y, to a head's columns of a
// matrix, from (row, column) on. `slab`, 16 rows of a tile that only this warp uses, serves as a buffer. The sums are
// the tile's rows first .. first + 15; those of keys or queries from `count` on are not written.
template <int kWidth, bool kKeys, bool kVectors, class H>
__device__ void store_rows(const Matrix<H>& to, int row, int column, int first, int count, const uint8_t* slab,
                           const float (&sums)[kWidth / 8][4], float2 factors, int width) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const uint32_t mine = shared_of(slab) + rows_of_lane<kWidth>();
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kWidth / 16; ++n) {
    const auto& x = sums[2 * n];
    const auto& y = sums[2 * n + 1];
    store_fragment(mine ^ 32 * n,
                   {{pack<H>(x[0] * factors.x, x[1] * factors.x), pack<H>(x[2] * factors.y, x[3] * factors.y),
                     pack<H>(y[0] * factors.x, y[1] * factors.x), pack<H>(y[2] * factors.y, y[3] * factors.y)}});
  }
  __syncwarp();
  const OwnPiece<kWidth, kWarp> own(lane);
  const int at = own.piece * 8, position = kKeys ? permuted(first + own.row) : first + own.row;
  const int left = at < width ? count - position : 0;
  const auto step = static_cast<uint32_t>(to.stride * sizeof(H));
  H* const target = to.at(row + position, column + at);
#pragma unroll
  for (int i = 0; i < 16; i += own.kStep) {
    const int further = kKeys ? permuted(i) : i;
    if (further < left) {
      const auto* from = reinterpret_cast<const H*>(slab + (place<kWidth>(own.row, own.piece) ^ flipped<kWidth>(i)) +
                                                    i * kRowBytes<kWidth>);
      auto* const there = reinterpret_cast<H*>(reinterpret_cast<char*>(target) + uint64_t{step} * further);
      if constexpr (kVectors) {
        *reinterpret_cast<uint4*>(there) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int e = 0; e < min(8, width - at); ++e) {
          there[e] = from[e];
        }
      }
    }
  }
}

// Zeroes a head's columns of `count` rows, beginning at (row, column), with kTeam threads.
template <bool kVectors, int kTeam, class H>
__device__ void clear_rows(const Matrix<H>& to, int row, int column, int count, int width) {
  constexpr int kUnit = kVectors ? 8 : 1;
  const int units = width / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < count * units; i += kTeam) {
    H* target = to.at(row + i / units, column + i % units * kUnit);
    if constexpr (kVectors) {
      *reinterpret_cast<uint4*>(target) = uint4{0, 0, 0, 0};
    } else {
      *target = from_float<H>(0.0F);
    }
  }
}

}  // namespace tandem::backend::cuda
