// What attention's forward and backward share: where a block's sentence lies, tiles in shared memory, products of 16
// rows a warp.
//
// Keys lie permuted in shared memory: of 32 keys, key 8 t + 2 j + e is row 8 j + 2 t + e. So lane t of a quad holds, in
// the columns 2t, 2t + 1 of four neighbouring blocks j of scores, the eight keys 8 t .. 8 t + 7: one group of dropout
// lanes, block j's pair being word j.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "backend/backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
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
    require(view.stride <= INT32_MAX / 64, "attention on a GPU takes rows {} apart, not {}", INT32_MAX / 64,
            view.stride);
  }
  __device__ Bf16* at(int row, int column) const { return data + int64_t{row} * stride + column; }
};

struct AttentionArguments {
  const int32_t* query_starts;  // [sentences + 1], the first is 0
  const int32_t* key_starts;
  int sentences, heads, width;
  int query_rows, key_rows;
  bool causal;
  float scale;       // 1 / sqrt(width)
  float scale_log2;  // scale * log2(e): 2^(scale_log2 * score) = e^(scale * score)
  DropoutArguments dropout;
};

inline AttentionArguments attention_arguments(const AttentionShape& shape, const View& q, const View& k) {
  const int64_t width = q.cols / shape.heads;
  require(width >= 1 && width <= 128, "attention on a GPU takes heads of 1 to 128 columns, not of {}", width);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  return {.query_starts = data<int32_t>(shape.query_starts),
          .key_starts = data<int32_t>(shape.key_starts),
          .sentences = static_cast<int>(shape.query_starts.cols - 1),
          .heads = shape.heads,
          .width = static_cast<int>(width),
          .query_rows = static_cast<int>(q.rows),
          .key_rows = static_cast<int>(k.rows),
          .causal = shape.causal,
          .scale = scale,
          .scale_log2 = scale * 1.4426950408889634F,
          .dropout = DropoutArguments(shape.dropout)};
}

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

// ---- which sentence. The queries of each sentence are cut into tiles of kTile rows, and blocks are given out by
// slots: sentence i has the slots from starts[i] / kTile + i on, which are always enough and at least one. So the
// number of slots is known without the starts, and few of them are empty. The rows past the last sentence are sentence
// number `sentences`.

struct Sentence {
  int tile;                  // of the sentence's queries; the slot is empty where there is no such tile
  int first_query, queries;  // rows of the sentence
  int first_key, keys;
  bool attends;  // there are queries and keys, and they belong to a sentence
};

// Blocks: (heads, slots), the latter in two dimensions; those past the last slot are empty.
template <int kTile>
dim3 attention_grid(const AttentionArguments& a) {
  const int64_t slots = a.query_rows / kTile + int64_t{a.sentences} + 1;
  const int64_t down = std::min<int64_t>(slots, 1 << 15);
  return {static_cast<unsigned>(a.heads), static_cast<unsigned>(down), static_cast<unsigned>(divide_up(slots, down))};
}
__device__ inline int head_of_block() { return static_cast<int>(blockIdx.x); }
__device__ inline int slot_of_block() { return static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y); }

template <int kTile>
__device__ int tiles_before(int start) {
  return static_cast<int>(static_cast<unsigned>(start) / kTile);
}

// By a whole warp: 32 candidates at a time.
template <int kTile>
__device__ Sentence find_sentence(const AttentionArguments& a, int slot) {
  const int lane = threadIdx.x % kWarp;
  int i = 0;
  for (int count = a.sentences + 1; count > 1;) {
    const int step = (count + kWarp - 1) / kWarp;
    const int candidate = i + lane * step;
    const bool begun = lane * step < count && tiles_before<kTile>(a.query_starts[candidate]) + candidate <= slot;
    const int passed = (__popc(__ballot_sync(0xFFFFFFFF, begun)) - 1) * step;
    i += passed;
    count = min(step, count - passed);
  }
  const bool past = i == a.sentences;
  Sentence s;
  s.first_query = a.query_starts[i];
  s.first_key = a.key_starts[i];
  s.queries = (past ? a.query_rows : a.query_starts[i + 1]) - s.first_query;
  s.keys = (past ? a.key_rows : a.key_starts[i + 1]) - s.first_key;
  s.tile = slot - (tiles_before<kTile>(s.first_query) + i);
  s.attends = !past && s.queries > 0 && s.keys > 0;
  return s;
}

// ---- tiles in shared memory: rows of kWidth columns, kPitch apart so that eight rows lie in different banks

template <int kWidth>
constexpr int kPitch = kWidth + 8;

// 16 bytes to shared memory, zeros where !present; done after a wait.
__device__ inline void copy_async(Bf16* to, const Bf16* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending groups of this thread's copies are not done.
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows [0, filled) of a tile of kRows rows from a head's columns of a matrix, (row, column) being the tile's first
// element; zeros from row `count` and from column `width` on. By kTeam threads. kKeys: in the keys' order.
template <int kWidth, bool kKeys, bool kVectors, int kTeam, int kRows>
__device__ void load_tile(Bf16* tile, const Matrix& from, int row, int column, int count, int filled, int width,
                          int thread) {
  constexpr int kChunks = kWidth / 8;
  constexpr int kStep = kTeam / kChunks;  // rows at a time
  const int own = thread / kChunks, first = thread % kChunks * 8;
  asm volatile("" : "+r"(row));  // in a loop, addresses are worked out anew: registers are few
  const Bf16* source = from.at(row + own, column + first);
  Bf16* to = tile + (kKeys ? permuted(own) : own) * kPitch<kWidth> + first;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    Bf16* const there = to + (kKeys ? permuted(i) : i) * kPitch<kWidth>;
    if (own + i < filled) {
      if constexpr (kVectors) {
        copy_async(there, source + int64_t{i} * from.stride, own + i < count && first < width);
      } else {
#pragma unroll 1
        for (int e = 0; e < 8; ++e) {
          there[e] =
              own + i < count && first + e < width ? source[int64_t{i} * from.stride + e] : __float2bfloat16_rn(0.0F);
        }
      }
    }
  }
}

// ---- products

// scores [16, 32] += rows [16, kWidth] columns', for 32 rows of a tile of keys or values.
template <int kWidth>
__device__ void multiply_by_keys(float (&scores)[4][4], const Bf16* rows, const Bf16* columns) {
  const int lane = threadIdx.x % kWarp;
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
  const int lane = threadIdx.x % kWarp;
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
  const int lane = threadIdx.x % kWarp;
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
  const int position = kKeys ? permuted(first + own) : first + own;
  const int left = at < width ? count - position : 0;
  const Bf16* source = slab + own * kPitch<kWidth> + at;
  Bf16* target = to.at(row + position, column + at);
#pragma unroll
  for (int i = 0; i < 16; i += kStep, source += kStep * kPitch<kWidth>) {
    const int further = kKeys ? permuted(i) : i;
    if (further < left) {
      Bf16* const there = target + int64_t{further} * to.stride;
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
