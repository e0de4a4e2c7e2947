// The epilogues of a tile's sums: bias, relu, dropout and the gate in the forward pass, the gate and the column sums in
// the backward pass.
//
// A group that multiplies only rounds its 64 x 256 sums to 16 bits in shared memory (`write`) and continues with the
// next tile. The warps of another group take them from there (`finish`), eight columns of one row in each lane: one
// Philox call, one byte of the gate, one 16-byte store.
#pragma once

#include "backend/cuda/dropout.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/hopper_products.h"
#include "backend/cuda/mma.cuh"

namespace tandem::backend::cuda {

constexpr int kGroupThreads = 128;  // a group of four warps
constexpr int kGroupWarps = 4;
constexpr int kGroupRows = 64;
constexpr int kChunkCols = kTileCols / kGroupWarps;
constexpr int kChunkRows = kGroupRows / kGroupWarps;
constexpr uint32_t kChunkBytes = kGroupRows * kChunkCols * kHalfBytes;
constexpr uint32_t kSlotBytes = kGroupWarps * kChunkBytes;  // a group's 64 x 256: four chunks of 64 x 64

constexpr int kGroups = 2;  // groups that multiply; one more finishes
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
static_assert(kTileRows == kGroupRows * kGroups);
constexpr int kStages = 3;
constexpr uint32_t kBytesA = kTileRows * kDepth * kHalfBytes, kBytesB = kTileCols * kDepth * kHalfBytes;
constexpr uint32_t kStageBytes = kBytesA + kBytesB;
constexpr uint32_t kPatternBytes = 1024;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A thread of a group that multiplies.
struct Writer {
  int group, thread;

  // pair(fetch(unit), a, b) packs two columns of unit `unit` (eight columns) into 16 bits each. In a chunk, unit u of
  // row r lies at place u ^ r % 8 of the row's 128 bytes.
  template <class Fetch, class Pair>
  __device__ void write(uint32_t slot, const float (&sums)[128], const Fetch& fetch, const Pair& pair) const {
    constexpr int kAhead = 4, kUnits = kTileCols / 8;      // units; the compiler does not fetch ahead of stores itself
    const int r = thread % 8, block = thread % kWarp / 8;  // this lane's row in the 8 x 8 blocks, and its block
    const uint32_t at = slot + (thread / kWarp * 16 + block % 2 * 8 + r) * 128 + ((block / 2 ^ r) << 4);
    decltype(fetch(0)) fetched[kUnits];
#pragma unroll
    for (int unit = -kAhead; unit < kUnits; unit += 2) {
      if (unit + kAhead < kUnits) {
        fetched[unit + kAhead] = fetch(unit + kAhead);
        fetched[unit + kAhead + 1] = fetch(unit + kAhead + 1);
      }
      if (unit >= 0) {
        const float* s = sums + 4 * unit;
        const auto &first = fetched[unit], &second = fetched[unit + 1];
        store_fragment(
            (at ^ unit % 8 << 4) + unit / 8 * kChunkBytes,
            {{pair(first, s[0], s[1]), pair(first, s[2], s[3]), pair(second, s[4], s[5]), pair(second, s[6], s[7])}});
      }
    }
  }
};

__device__ inline uint4 load_shared(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

// A warp's part of a slot: 64 x 64, or 16 x 256.
struct Chunk {
  int row, col;  // the first ones in the result
  int lane;
  uint32_t at;  // address in shared memory

  // Moves on by 16 rows.
  __device__ void advance() {
    row += 16;
    at += 16 * 128;
  }
  // Reads unit lane % 8 of the rows lane / 8 + 0, 4, 8, 12.
  __device__ void read(uint4 (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = lane / 8 + 4 * i;
      v[i] = load_shared(at + r * 128 + ((lane % 8 ^ r % 8) << 4));
    }
  }
};

// Picks bytes of (low, high) by their numbers, 0 to 7; 8 more gives the byte's sign in all of its bits.
__device__ inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t numbers) {
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(numbers));
  return picked;
}

// Predicated: stores only if `where`, without branching.
__device__ inline void store_16(void* to, const uint4& v, bool where) {
  asm volatile(
      "{\n"
      ".reg .pred where;\n"
      "setp.ne.b32 where, %5, 0;\n"
      "@where st.global.v4.u32 [%0], {%1, %2, %3, %4};\n"
      "}" ::"l"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<int>(where))
      : "memory");
}
__device__ inline void store_1(void* to, uint32_t byte, bool where) {
  asm volatile(
      "{\n"
      ".reg .pred where;\n"
      "setp.ne.b32 where, %2, 0;\n"
      "@where st.global.u8 [%0], %1;\n"
      "}" ::"l"(to),
      "r"(byte), "r"(static_cast<int>(where))
      : "memory");
}

// keep_pair in three instructions: max(lane, threshold - 1) differs from threshold - 1 iff the lane is kept, and so do
// the two as 16-bit floats, unless threshold - 1 is a zero or a NaN. below: threshold - 1, twice.
template <class H>
__device__ uint32_t quick_keep_pair(uint32_t pair, uint32_t lanes, uint32_t below) {
  uint32_t larger;
  asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(lanes), "r"(below));
  return pair & Half<H>::differ(larger, below);
}

// A bit for each of eight numbers, 1 if it is not 0. None may be negative.
__device__ inline uint32_t nonzero_bits(const uint4& v) {
  constexpr uint32_t kCarry = 0x7FFF7FFF;  // carries what is not 0 into the sign
  const uint32_t low = pick_bytes(v.x + kCarry, v.y + kCarry, 0xFDB9);
  const uint32_t high = pick_bytes(v.z + kCarry, v.w + kCarry, 0xFDB9);
  constexpr int kLowWeights = 0xF8FCFEFF, kHighWeights = 0x80C0E0F0;  // bytes -1, -2, ... -128
  return __dp4a(static_cast<int>(high), kHighWeights, __dp4a(static_cast<int>(low), kLowWeights, 0));
}

// Pair p (0 to 3) of a unit, with 0 for numbers that have no bit in the unit's gate, which is byte i of `gates`.
__device__ inline uint32_t gate_pair(uint32_t pair, uint32_t gates, int i, int p) {
  return pair & pick_bytes(gates << (7 - 2 * p), gates << (6 - 2 * p), 0xCC88 + 0x1111 * i);
}

struct Nothing {};

#endif

// kBias: `write` takes a pair of scaled biases for each pair of the tile's columns. kHelpedRows: rows of a chunk of the
// last tile that another warp finishes.
template <class H>
struct DropoutEpilogue {
  using Type = H;
  static constexpr bool kTransposedB = false, kWholeRows = false, kBias = true;
  static constexpr int kHelpedRows = 16;

  H* y;
  uint8_t* gate;  // may be null
  const H* bias;
  int64_t y_stride, gate_stride;  // elements, bytes
  int rows, cols;
  DropoutArguments dropout;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ float2 fetch_biases(int col) const {
    const uint32_t two = col < cols ? *reinterpret_cast<const uint32_t*>(bias + col) : 0;
    return {Half<H>::low(two) * dropout.scale, Half<H>::high(two) * dropout.scale};
  }

  __device__ void write(uint32_t slot, const float (&sums)[128], const float2* biases, const Writer& writer) const {
    const float scale = dropout.scale;
    const float2* own = biases + writer.thread % 4;
    writer.write(
        slot, sums, [&](int unit) { return own[4 * unit]; },
        [&](float2 two, float a, float b) { return Half<H>::relu(fmaf(a, scale, two.x), fmaf(b, scale, two.y)); });
  }

  using Constants = PhiloxRows;
  __device__ Constants constants() const { return PhiloxRows(dropout); }

  __device__ void prefetch_gates(int, int) const {}
  using Gates = Nothing;
  __device__ Gates fetch_gates(const Chunk&) const { return {}; }

  // Finishes the first `count` rows.
  __device__ void finish(Chunk chunk, int count, const Gates&, const Constants& random) const {
    const auto column = random.column(chunk.col / 8 + chunk.lane % 8);
#pragma unroll 1
    for (int r = 0; r < count; r += 16) {
      uint4 v[4];
      chunk.read(v);
      if (dropout.threshold > 0) {
        drop(v, chunk.row + chunk.lane / 8, random, column);
      }
      store(v, chunk);
      chunk.advance();
    }
  }

  // Applies dropout to rows row, row + 4, row + 8 and row + 12. For rate 1, the scale has made everything 0 already.
  __device__ void drop(uint4 (&v)[4], int row, const PhiloxRows& random, const PhiloxRows::Column& column) const {
    uint32_t lanes[4][4];
    random.lanes(lanes, row, column);
    const uint32_t limit = dropout.threshold << 16, below = (dropout.threshold - 1) * 0x10001;
    const bool quick = quick_keep_possible<H>(dropout.threshold);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t* const pairs[4] = {&v[i].x, &v[i].y, &v[i].z, &v[i].w};
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        *pairs[p] =
            quick ? quick_keep_pair<H>(*pairs[p], lanes[i][p], below) : keep_pair(*pairs[p], lanes[i][p], limit);
      }
    }
  }

  // Stores 16 rows of the chunk.
  __device__ void store(const uint4 (&v)[4], const Chunk& chunk) const {
    const int row = chunk.row + chunk.lane / 8, unit = chunk.col / 8 + chunk.lane % 8;
    H* to = y + row * y_stride + unit * 8;
    uint8_t* bits = gate + row * gate_stride + unit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_16(to, v[i], row + 4 * i < rows);
      store_1(bits, nonzero_bits(v[i]), row + 4 * i < rows && gate != nullptr);
      to += 4 * y_stride;
      bits += 4 * gate_stride;
    }
  }
#endif
};

template <class H>
struct GateEpilogue {
  using Type = H;
  static constexpr bool kTransposedB = true, kWholeRows = false, kBias = false;
  static constexpr int kHelpedRows = 0;

  H* dx;
  const uint8_t* gate;
  float* partial;                  // may be null
  int64_t dx_stride, gate_stride;  // elements, bytes
  int rows, cols;
  float scale;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ void write(uint32_t slot, const float (&sums)[128], const float2*, const Writer& writer) const {
    writer.write(
        slot, sums, [](int) { return Nothing{}; },
        [&](Nothing, float a, float b) { return pack<H>(a * scale, b * scale); });
  }

  using Constants = Nothing;
  __device__ Constants constants() const { return {}; }

  // Prefetches the gates of one row for all of the tile's columns into the L2 cache.
  __device__ void prefetch_gates(int row, int col) const {
    if (row < rows) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(gate + row * gate_stride + col / 8));
    }
  }
  // Byte i % 4 of word i / 4 is the gate of row (lane / 8 + 4 i) in this lane's unit.
  struct alignas(16) Gates {
    uint32_t words[kGroupRows / 16];
  };
  __device__ Gates fetch_gates(const Chunk& chunk) const {
    uint32_t bytes[kGroupRows / 4];
    int row = chunk.row + chunk.lane / 8;
    const uint8_t* from = gate + row * gate_stride + chunk.col / 8 + chunk.lane % 8;
#pragma unroll
    for (uint32_t& byte : bytes) {
      byte = row < rows && chunk.col < cols ? *from : 0;
      row += 4;
      from += 4 * gate_stride;
    }
    Gates gates;
#pragma unroll
    for (int i = 0; i < kGroupRows / 16; ++i) {
      gates.words[i] = bytes[4 * i] | bytes[4 * i + 1] << 8 | bytes[4 * i + 2] << 16 | bytes[4 * i + 3] << 24;
    }
    return gates;
  }

  __device__ void finish(Chunk chunk, int /*count*/, Gates gates, const Constants&) const {
    const int part = chunk.row / kGroupRows;
    float totals[8] = {};  // sums of the lane's unit
#pragma unroll 1
    for (int r = 0; r < kGroupRows; r += 16) {
      gate_and_store(chunk, gates.words[0], totals);
      chunk.advance();
#pragma unroll
      for (int i = 1; i < kGroupRows / 16; ++i) {
        gates.words[i - 1] = gates.words[i];
      }
    }
    if (partial != nullptr) {
#pragma unroll
      for (float& total : totals) {
        total += __shfl_xor_sync(0xFFFFFFFF, total, 8);
        total += __shfl_xor_sync(0xFFFFFFFF, total, 16);
      }
      if (chunk.lane < 8) {
        auto* to = reinterpret_cast<float4*>(partial + int64_t{part} * cols + chunk.col + 8 * chunk.lane);
        to[0] = {totals[0], totals[1], totals[2], totals[3]};
        to[1] = {totals[4], totals[5], totals[6], totals[7]};
      }
    }
  }

  // Gates and stores 16 rows of the chunk.
  __device__ void gate_and_store(const Chunk& chunk, uint32_t gates, float (&totals)[8]) const {
    const int row = chunk.row + chunk.lane / 8;
    H* to = dx + row * dx_stride + chunk.col + chunk.lane % 8 * 8;
    uint4 v[4];
    chunk.read(v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pairs[4] = {gate_pair(v[i].x, gates, i, 0), gate_pair(v[i].y, gates, i, 1),
                                 gate_pair(v[i].z, gates, i, 2), gate_pair(v[i].w, gates, i, 3)};
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        totals[2 * p] += Half<H>::low(pairs[p]);
        totals[2 * p + 1] += Half<H>::high(pairs[p]);
      }
      store_16(to, {pairs[0], pairs[1], pairs[2], pairs[3]}, row + 4 * i < rows);
      to += 4 * dx_stride;
    }
  }
#endif
};

}  // namespace tandem::backend::cuda
