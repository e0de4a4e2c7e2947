// What becomes of a tile's sums: bias, relu, dropout and the gate on the way forward, the gate and the columns' sums on
// the way back.
//
// A warp holds 16 x 256 sums in the layout of multiply_64x256. They go through shared memory, 64 columns at a time, and
// come back as eight columns of one row in each lane: one Philox call, one byte of the gate, one 16-byte store.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/philox_rows.cuh"

namespace tandem::cuda {

constexpr int kGroupThreads = 128;  // a group of four warps
constexpr int kGroupWarps = 4;
constexpr int kTileCols = 256;
constexpr int kChunkCols = 64;
constexpr int kChunks = kTileCols / kChunkCols;
constexpr uint32_t kChunkBytes = 16 * kChunkCols * sizeof(Bf16);  // of a warp
constexpr int kGroupFloats = 2 * kGroupWarps * kTileCols;         // of shared memory, for a group's own use

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A warp's part of a tile.
struct Place {
  int row, col;      // the first of its 16 rows and of the tile's 256 columns
  int part;          // number of the group's 64 rows
  int parity;        // of the number of tiles that the block has done
  int group;         // of warps
  int thread, lane;  // in the group, in the warp
  uint32_t chunk;    // shared memory of the warp, kChunkBytes
  float* floats;     // shared memory of the group, kGroupFloats

  __device__ int warp() const { return thread / kWarp; }
  __device__ void sync_group() const { sync_threads_of(1 + group, kGroupThreads); }

  // Blocks of 8 x 8 (rows 0 to 7 and 8 to 15 of units j and j + 1, j even; a unit is eight columns): the address that
  // this lane gives. Unit u of row r lies at place u ^ r % 8 of its row.
  __device__ uint32_t blocks(int j) const {
    const int r = lane % 8, block = lane / 8;
    return (chunk + (r + block % 2 * 8) * 128 + ((block / 2 ^ r) << 4)) ^ j << 4;
  }
  // Row r + lane / 8, unit lane % 8, for r a multiple of 4.
  __device__ uint4 read_unit(int r) const {
    const int own = r + lane / 8;
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(chunk + own * 128 + ((lane % 8 ^ own % 8) << 4))
                 : "memory");
    return v;
  }
};

// Bytes of (low, high) by their number, 0 to 7; 8 more: the byte's sign in all of its bits.
__device__ inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t numbers) {
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(numbers));
  return picked;
}

// Stores where `where` holds, without a branch around them.
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

// Two bf16, negative ones as 0.
__device__ inline uint32_t pack_relu(float low, float high) {
  uint32_t both;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// A bit for each of eight bf16, 1 where it is not 0. None is negative.
__device__ inline uint32_t nonzero_bits(const uint4& v) {
  constexpr uint32_t kCarry = 0x7FFF7FFF;  // takes what is not 0 to the sign
  const uint32_t low = pick_bytes(v.x + kCarry, v.y + kCarry, 0xFDB9);
  const uint32_t high = pick_bytes(v.z + kCarry, v.w + kCarry, 0xFDB9);
  constexpr int kLowWeights = 0xF8FCFEFF, kHighWeights = 0x80C0E0F0;  // bytes -1, -2, ... -128
  return __dp4a(static_cast<int>(high), kHighWeights, __dp4a(static_cast<int>(low), kLowWeights, 0));
}

// The two of a pair whose 16-bit lanes reach the limit (threshold << 16), 0 in place of the others.
__device__ inline uint32_t keep_pair(uint32_t pair, uint32_t lanes, uint32_t limit) {
  const uint32_t low = lanes << 16 >= limit ? pair : pair & 0xFFFF0000;
  return lanes >= limit ? low : low & 0x0000FFFF;
}

#endif

struct DropoutEpilogue {
  static constexpr bool kTransposedB = false;

  Bf16* y;
  uint8_t* gate;  // or null
  const Bf16* bias;
  int64_t y_stride, gate_stride;  // elements, bytes
  int rows, cols;
  DropoutArguments dropout;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Constants = PhiloxRows;
  __device__ Constants constants() const { return PhiloxRows(dropout); }

  using Ahead = uint32_t;  // two of the biases; read before the product, so that they are there when it is
  __device__ Ahead fetch(const Place& place) const {
    const int col = place.col + 2 * place.thread;
    return col < cols ? *reinterpret_cast<const uint32_t*>(bias + col) : 0;
  }

  __device__ void finish(const float (&sums)[128], Ahead ahead, const Constants& random, const Place& place) const {
    const float scale = dropout.scale;
    float2* scaled = reinterpret_cast<float2*>(place.floats) + place.parity * (kTileCols / 2);
    scaled[place.thread] = {__uint_as_float(ahead << 16) * scale, __uint_as_float(ahead & 0xFFFF0000) * scale};
    place.sync_group();
    const float2* biases = scaled + place.lane % 4;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (place.col + c * kChunkCols < cols) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const float* s = sums + 4 * (8 * c + j);
          const float2 b0 = biases[4 * (8 * c + j)], b1 = biases[4 * (8 * c + j + 1)];
          store_blocks(place.blocks(j), pack_relu(fmaf(s[0], scale, b0.x), fmaf(s[1], scale, b0.y)),
                       pack_relu(fmaf(s[2], scale, b0.x), fmaf(s[3], scale, b0.y)),
                       pack_relu(fmaf(s[4], scale, b1.x), fmaf(s[5], scale, b1.y)),
                       pack_relu(fmaf(s[6], scale, b1.x), fmaf(s[7], scale, b1.y)));
        }
        __syncwarp();
        drop_and_store(random, place, c);
        __syncwarp();
      }
    }
  }

  __device__ void drop_and_store(const PhiloxRows& random, const Place& place, int chunk) const {
    const int row = place.row + place.lane / 8, unit = (place.col + chunk * kChunkCols) / 8 + place.lane % 8;
    uint4 v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = place.read_unit(4 * i);
    }
    if (dropout.threshold > 0) {
      const uint32_t limit = dropout.threshold << 16;  // rate 1: everything is 0 already, by the scale
      uint32_t lanes[4][4];
      random.lanes(lanes, row, unit);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = {keep_pair(v[i].x, lanes[i][0], limit), keep_pair(v[i].y, lanes[i][1], limit),
                keep_pair(v[i].z, lanes[i][2], limit), keep_pair(v[i].w, lanes[i][3], limit)};
      }
    }
    Bf16* to = y + row * y_stride + unit * 8;
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

struct GateEpilogue {
  static constexpr bool kTransposedB = true;

  Bf16* dx;
  const uint8_t* gate;
  float* partial;                  // or null
  int64_t dx_stride, gate_stride;  // elements, bytes
  int rows, cols;
  float scale;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  struct Constants {};
  __device__ Constants constants() const { return {}; }

  struct Ahead {
    uint2 gate[2][kChunks];  // of rows g and g + 8: a byte for each unit
  };
  __device__ Ahead fetch(const Place& place) const {
    Ahead ahead;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place.row + place.lane / 4 + 8 * half;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int col = place.col + c * kChunkCols;
        ahead.gate[half][c] =
            row < rows && col < cols ? *reinterpret_cast<const uint2*>(gate + row * gate_stride + col / 8) : uint2{};
      }
    }
    return ahead;
  }

  // Two sums of unit j, for which this lane's two bits of the unit's byte are set.
  __device__ uint32_t gated(const float* s, const uint2& bits, int j, int lane) const {
    const uint32_t four = j < 4 ? bits.x : bits.y;  // units
    const int shift = lane % 4 * 2;
    const uint32_t mask = pick_bytes(four << (7 - shift), four << (6 - shift), 0xCC88 + j % 4 * 0x1111);
    return pack(s[0] * scale, s[1] * scale) & mask;
  }

  __device__ void finish(const float (&sums)[128], const Ahead& ahead, const Constants&, const Place& place) const {
    float* totals = place.floats + (place.parity * kGroupWarps + place.warp()) * kTileCols;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (place.col + c * kChunkCols < cols) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const float* s = sums + 4 * (8 * c + j);
          store_blocks(place.blocks(j), gated(s, ahead.gate[0][c], j, place.lane),
                       gated(s + 2, ahead.gate[1][c], j, place.lane), gated(s + 4, ahead.gate[0][c], j + 1, place.lane),
                       gated(s + 6, ahead.gate[1][c], j + 1, place.lane));
        }
        __syncwarp();
        store(place, c);
        if (partial != nullptr) {
          add_columns(totals + c * kChunkCols, place);
        }
        __syncwarp();
      }
    }
    const int col = place.col + 2 * place.thread;
    if (partial != nullptr) {
      place.sync_group();
      if (col < cols) {
        const auto* of_warps = reinterpret_cast<const float2*>(place.floats) + place.parity * kGroupFloats / 4;
        float2 all{};
#pragma unroll
        for (int w = 0; w < kGroupWarps; ++w) {
          const float2 one = of_warps[w * (kTileCols / 2) + place.thread];
          all = {all.x + one.x, all.y + one.y};
        }
        *reinterpret_cast<float2*>(partial + int64_t{place.part} * cols + col) = all;
      }
    }
  }

  __device__ void store(const Place& place, int chunk) const {
    const int row = place.row + place.lane / 8;
    Bf16* to = dx + row * dx_stride + place.col + chunk * kChunkCols + place.lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_16(to, place.read_unit(4 * i), row + 4 * i < rows);
      to += 4 * dx_stride;
    }
  }

  // The columns' sums over the chunk's 16 rows: a row of ones times the chunk.
  __device__ static void add_columns(float* totals, const Place& place) {
    constexpr uint32_t kOnes = 0x3F803F80;
    const Fragment ones{{kOnes, kOnes, kOnes, kOnes}};
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const Fragment two =
          load_fragment_transposed(static_cast<const Bf16*>(__cvta_shared_to_generic(place.blocks(j))));
      float first[4] = {}, second[4] = {};
      multiply(first, ones, two.r[0], two.r[1]);
      multiply(second, ones, two.r[2], two.r[3]);
      if (place.lane < 4) {
        *reinterpret_cast<float2*>(totals + 8 * j + 2 * place.lane) = {first[0], first[1]};
        *reinterpret_cast<float2*>(totals + 8 * j + 8 + 2 * place.lane) = {second[0], second[1]};
      }
    }
  }
#endif
};

}  // namespace tandem::cuda
