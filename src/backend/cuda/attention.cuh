// What attention's forward and backward share: where a block's sentence lies, factors in registers, products of 16 rows
// a warp.
//
// Keys are taken 32 at a time, in an order of their own: key 8 t + 2 j + e is row 2 t + e of block j of eight. So lane
// t of a quad holds, in the columns 2t, 2t + 1 of four blocks j of scores, the eight keys 8 t .. 8 t + 7: one group of
// dropout lanes, block j's pair being word j.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"
#include "backend/cuda/mma.cuh"

namespace tandem::cuda {

constexpr int kKeyStep = 32;  // keys that a warp takes at a time

// bf16 in device memory: row r, first column of a head. A row's bytes are a 32-bit number so that an address is one
// multiplication.
struct Matrix {
  Bf16* data = nullptr;
  int bytes = 0;  // from row to row

  Matrix() = default;
  explicit Matrix(const View& view)
      : data(cuda::data<Bf16>(view)), bytes(static_cast<int>(view.stride * sizeof(Bf16))) {
    require(view.stride < (1 << 30), "attention on a GPU takes rows of less than 2^30 columns");
  }
  __device__ Bf16* at(int row, int column) const { return below(data + column, row); }
  // The element `rows` rows below another.
  template <class T>
  __device__ T* below(T* element, int rows) const {
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return reinterpret_cast<T*>(reinterpret_cast<Byte*>(element) + int64_t{rows} * bytes);
  }
};

struct AttentionArguments {
  const int32_t* query_starts;  // [sentences + 1], the first is 0
  const int32_t* key_starts;
  int sentences, heads, width;
  int query_rows, key_rows;
  bool causal;
  bool vectors;      // 16-byte accesses are possible in all matrices
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
          .vectors = width % 8 == 0,
          .scale = scale,
          .scale_log2 = scale * 1.4426950408889634F,
          .dropout = DropoutArguments(shape.dropout)};
}

// Calls launch.operator()<columns of a head, rounded up, dropout, the head has as many columns and is aligned>().
template <class Launch>
void for_width(const AttentionArguments& a, const Launch& launch) {
  const auto with = [&]<int kWidth>() {
    const auto on = [&]<bool kDropout>() {
      a.vectors&& a.width == kWidth ? launch.template operator()<kWidth, kDropout, true>()
                                    : launch.template operator()<kWidth, kDropout, false>();
    };
    a.dropout.on() ? on.template operator()<true>() : on.template operator()<false>();
  };
  if (a.width <= 16) {
    with.template operator()<16>();
  } else if (a.width <= 32) {
    with.template operator()<32>();
  } else if (a.width <= 64) {
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

template <int kTile>
int64_t slots(const AttentionArguments& a) {
  return a.query_rows / kTile + int64_t{a.sentences} + 1;
}

// By a whole warp: 32 candidates at a time.
template <int kTile>
__device__ Sentence find_sentence(const AttentionArguments& a, int slot) {
  const int lane = threadIdx.x % kWarp;
  int i = 0;
  for (int count = a.sentences + 1; count > 1;) {
    const int step = (count + kWarp - 1) / kWarp;
    const int candidate = i + lane * step;
    const bool begun = lane * step < count && a.query_starts[candidate] / kTile + candidate <= slot;
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
  s.tile = slot - (s.first_query / kTile + i);
  s.attends = !past && s.queries > 0 && s.keys > 0;
  return s;
}

// ---- factors in registers, from device memory. Which column of a head stands where in a fragment is free, as long as
// both factors agree; so a lane holds neighbouring columns and loads them in one go. Of a fragment, g = lane / 4 and
// t = lane % 4.

template <int kCount>
using Vector = std::conditional_t<kCount == 8, uint4, std::conditional_t<kCount == 4, uint2, uint32_t>>;

// kCount neighbouring columns of a row, two a word. kWhole: the row has them all and is aligned; otherwise there are
// zeros from column `width` on.
template <int kCount, bool kWhole>
__device__ void load_columns(uint32_t* to, const Bf16* row, int column, int width) {
  if constexpr (kWhole) {
    const auto vector = *reinterpret_cast<const Vector<kCount>*>(row + column);
    memcpy(to, &vector, sizeof(vector));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      to[i / 2] = pack(column + i < width ? __bfloat162float(row[column + i]) : 0.0F,
                       column + i + 1 < width ? __bfloat162float(row[column + i + 1]) : 0.0F);
      asm volatile("" : "+r"(to[i / 2]));  // one after the other: there are no registers for all columns unpacked
    }
  }
}

template <int kCount, bool kWhole>
__device__ void store_columns(Bf16* row, int column, int width, const uint32_t* from) {
  if constexpr (kWhole) {
    Vector<kCount> vector;
    memcpy(&vector, from, sizeof(vector));
    *reinterpret_cast<Vector<kCount>*>(row + column) = vector;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (column + i < width) {
        row[column + i] = __ushort_as_bfloat16(static_cast<uint16_t>(from[i / 2] >> (i % 2 * 16)));
      }
    }
  }
}

// Row g of a factor of products over the columns: this lane's quarter of it. Of each 4 kCount columns, lane t has the
// kCount from t kCount on.
template <int kWidth>
struct Row {
  static constexpr int kCount = kWidth < 32 ? 4 : 8;
  uint32_t words[kWidth / 8];

  // kAtOnce: columns of one access.
  template <bool kWhole, int kAtOnce = kCount>
  __device__ void load(const Bf16* row, int width) {
#pragma unroll
    for (int i = 0; i < kWidth / 4; i += kAtOnce) {
      const int column = i / kCount * 4 * kCount + i % kCount + static_cast<int>(threadIdx.x) % 4 * kCount;
      load_columns<kAtOnce, kWhole>(words + i / 2, row, column, width);
    }
  }
};

// A row of a factor of products over the rows: this lane's eighth of it. Of each 8 kCount columns, lane g has the
// kCount from g kCount on.
template <int kWidth>
struct Columns {
  static constexpr int kCount = kWidth < 64 ? kWidth / 8 : 8;
  uint32_t words[kWidth / 16];

  template <bool kWhole>
  __device__ void load(const Bf16* row, int width) {
#pragma unroll
    for (int i = 0; i < kWidth / 8; i += kCount) {
      load_columns<kCount, kWhole>(words + i / 2, row, 8 * i + static_cast<int>(threadIdx.x) % kWarp / 4 * kCount,
                                   width);
    }
  }
};

// Position among 32 keys of the key that is row g of their block j.
__device__ inline int key_of_lane(int j) {
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  return g / 2 * 8 + 2 * j + g % 2;
}

// scores [16, 8] += rows [16, kWidth] keys'
template <int kWidth>
__device__ void multiply_rows(float (&scores)[4], const Row<kWidth> (&rows)[2], const Row<kWidth>& keys) {
#pragma unroll
  for (int i = 0; i < kWidth / 8; i += 2) {
    const Fragment left = {{rows[0].words[i], rows[1].words[i], rows[0].words[i + 1], rows[1].words[i + 1]}};
    multiply(scores, left, keys.words[i], keys.words[i + 1]);
  }
}

// sums [16, kWidth] += left [16, 16] rows; `rows` are the rows 2t, 2t + 1, 2t + 8, 2t + 9 of the right factor.
template <int kWidth>
__device__ void multiply_columns(float (&sums)[kWidth / 8][4], const Fragment& left, const Columns<kWidth>* rows) {
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) {
    const uint32_t w[4] = {rows[0].words[i], rows[1].words[i], rows[2].words[i], rows[3].words[i]};
    multiply(sums[2 * i], left, __byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410));
    multiply(sums[2 * i + 1], left, __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
  }
}

// Row g (r = 0) or g + 8 (r = 1) of such sums, times a factor, to a head's columns of a row.
template <int kWidth, bool kWhole>
__device__ void store_sums(Bf16* row, const float (&sums)[kWidth / 8][4], int r, float factor, int width) {
  constexpr int kCount = Columns<kWidth>::kCount;
#pragma unroll
  for (int i = 0; i < kWidth / 8; i += kCount) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 8 * i + (static_cast<int>(threadIdx.x) % 4 * 2 + e) * kCount;
      uint32_t words[kCount / 2];
#pragma unroll
      for (int c = 0; c < kCount; c += 2) {
        words[c / 2] = pack(sums[i + c][2 * r + e] * factor, sums[i + c + 1][2 * r + e] * factor);
      }
      store_columns<kCount, kWhole>(row, column, width, words);
    }
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

// A team of threads that write rows together.
struct Team {
  int thread, threads;
};

// Zeros in a head's columns, from `column` on, of `count` rows.
__device__ inline void clear_rows(const Matrix& matrix, int first, int column, int count, const AttentionArguments& a,
                                  Team team) {
  const int unit = a.vectors ? 8 : 1;
  const int units = a.width / unit;
  for (int i = team.thread; i < count * units; i += team.threads) {
    Bf16* target = matrix.at(first + i / units, column + i % units * unit);
    if (a.vectors) {
      *reinterpret_cast<uint4*>(target) = uint4{0, 0, 0, 0};
    } else {
      *target = __float2bfloat16_rn(0.0F);
    }
  }
}

}  // namespace tandem::cuda
