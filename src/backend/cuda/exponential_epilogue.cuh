// The epilogue of a tile of logits: it writes exponentials, and each row's sum and largest logit in the tile.
//
// A warp takes 16 rows of all the tile's columns. It first takes the labels' logits out of shared memory and leaves
// -infinity there, so that the rest is the same for all columns.
#pragma once

#include "backend/cuda/fused_epilogue.cuh"
#include "backend/cuda/logit_row.cuh"

namespace tandem::backend::cuda {

template <class H>
struct ExponentialEpilogue {
  using Type = H;
  static constexpr bool kTransposedB = false, kWholeRows = true, kBias = false;
  static constexpr int kHelpedRows = 0;
  static constexpr uint32_t kNothing = (0x8000 | Half<H>::kInfinity) * 0x10001;  // -infinity, twice
  static_assert(kTileCols == kExponentialCols);

  H* y;
  int64_t y_stride;
  int rows, cols;
  ExponentialRows<H> of;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ void write(uint32_t slot, const float (&sums)[128], const float2*, const Writer& writer) const {
    writer.write(
        slot, sums, [](int) { return Nothing{}; }, [](Nothing, float a, float b) { return pack<H>(a, b); });
  }

  using Constants = Nothing;
  __device__ Constants constants() const { return {}; }

  struct Gates {
    int label;        // the label of row `lane`, in the first 16 lanes
    float shifts[4];  // those of the rows lane / 8 + 0, 4, 8, 12
  };
  __device__ void prefetch_gates(int, int) const {}
  __device__ Gates fetch_gates(const Chunk& chunk) const {
    Gates gates;
    gates.label = chunk.lane < kChunkRows && chunk.row + chunk.lane < rows ? of.labels[chunk.row + chunk.lane] : -1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = chunk.row + chunk.lane / 8 + 4 * i;
      gates.shifts[i] = row < rows ? of.shifts[row] : 0.0F;
    }
    return gates;
  }

  __device__ void finish(Chunk chunk, int, const Gates& gates, const Constants&) const {
    take_label(chunk, gates.label);
    float sums[4] = {};
    uint32_t most[4] = {kNothing, kNothing, kNothing, kNothing}, limits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const H limit = Half<H>::not_above((gates.shifts[i] + kMostExponent) * kLn2);  // rounded down
      limits[i] = uint32_t{Half<H>::bits(limit)} * 0x10001;
    }
#pragma unroll 1
    for (int col = chunk.col; col < min(chunk.col + kTileCols, cols); col += kChunkCols) {
      uint4 v[4];
      chunk.read(v);
      H* to = y + (chunk.row + chunk.lane / 8) * y_stride + col + chunk.lane % 8 * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        exponentiate(v[i], gates.shifts[i], limits[i], sums[i], most[i]);
        store_16(to, v[i], chunk.row + chunk.lane / 8 + 4 * i < rows);
        to += 4 * y_stride;
      }
      chunk.at += kChunkBytes;
    }
    write_parts(chunk, sums, most);
  }

  // Takes out the label's logit of the lane's row, if the label is in this tile.
  __device__ void take_label(const Chunk& chunk, int label) const {
    const int col = label - chunk.col;
    if (label >= 0 && col >= 0 && col < kTileCols) {
      const uint32_t at = chunk.at + col / kChunkCols * kChunkBytes + chunk.lane * 128 +
                          ((col % kChunkCols / 8 ^ chunk.lane % 8) << 4) + col % 8 * kHalfBytes;
      uint16_t logit;
      asm volatile("ld.shared.u16 %0, [%1];" : "=h"(logit) : "r"(at) : "memory");
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(static_cast<uint16_t>(kNothing)) : "memory");
      of.label_logits[chunk.row + chunk.lane] = Half<H>::low(logit);
    }
    __syncwarp();
  }

  // Turns eight logits of one row into exponentials.
  __device__ static void exponentiate(uint4& v, float shift, uint32_t limit, float& sum, uint32_t& most) {
    uint32_t* const pairs[4] = {&v.x, &v.y, &v.z, &v.w};
#pragma unroll
    for (uint32_t* const pair : pairs) {
      most = Half<H>::larger(most, *pair);
      const uint32_t logits = Half<H>::smaller(*pair, limit);
      const float low = shifted_exp(Half<H>::low(logits), shift);
      const float high = shifted_exp(Half<H>::high(logits), shift);
      sum += low + high;
      *pair = pack<H>(low, high);
    }
  }

  // Eight lanes have the same four rows; lane i of them writes what row i has.
  __device__ void write_parts(const Chunk& chunk, float (&sums)[4], uint32_t (&most)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int distance = 1; distance < 8; distance *= 2) {
        sums[i] += __shfl_xor_sync(0xFFFFFFFF, sums[i], distance);
        most[i] = Half<H>::larger(most[i], __shfl_xor_sync(0xFFFFFFFF, most[i], distance));
      }
    }
    const int i = chunk.lane % 8, row = chunk.row + chunk.lane / 8 + 4 * i;
    if (i < 4 && row < rows) {
      const float sum = i == 0 ? sums[0] : i == 1 ? sums[1] : i == 2 ? sums[2] : sums[3];
      const uint32_t two = i == 0 ? most[0] : i == 1 ? most[1] : i == 2 ? most[2] : most[3];
      const int64_t at = int64_t{chunk.col / kTileCols} * rows + row;
      of.sums[at] = sum;
      reinterpret_cast<uint16_t*>(of.most)[at] = static_cast<uint16_t>(Half<H>::larger(two, two >> 16));
    }
  }
#endif
};

}  // namespace tandem::backend::cuda
