// The epilogue of a tile of whole rows: dropout, the residual connection and the norm.
//
// A warp finishes 16 rows of the block's 256 columns. It sends its part of each row's mean and squares to the other
// blocks of the cluster, which have the other columns.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/fused_epilogue.cuh"

namespace tandem::backend::cuda {

constexpr int kUnits = kTileCols / 8;

// Values of the block's columns that are the same for all rows.
struct Parameters {
  float4 bias[kUnits / 2][4];  // [t]: columns 2 t and 2 t + 1 of two units
  float4 norm[4][kUnits];      // gamma and beta of columns 2 k and 2 k + 1 of each unit
  uint4 columns[kUnits];       // PhiloxRows::column of each unit
  alignas(16) uint8_t random[sizeof(PhiloxRows)];
};

// Memory in which the blocks of a cluster exchange a warp's rows: (mean, squares) of each row from each block. A warp
// uses two such places in turn, so that what comes for its next rows does not overwrite what other lanes still read.
constexpr uint32_t kSentBytes = kChunkRows * 2 * sizeof(float);
constexpr int kMeetings = 2 * (kGroups + 1) * kGroupWarps;

template <class H>
struct NormArguments {
  H* sum;
  H* normed;
  float* statistics;
  const H* residual;
  const H* bias;  // may be null
  const float *gamma, *beta;
  int64_t sum_stride, normed_stride, statistics_stride, residual_stride;
  int rows;
  float share;  // 1 / columns
  DropoutArguments dropout;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Lane l has rows l / 8 + 0, 4, 8, 12 and, of each part of 64 columns, the eight of one unit.
constexpr int kRows = 4;
constexpr int kParts = kTileCols / kChunkCols, kPartUnits = kUnits / kParts;

__device__ inline void store_shared(uint32_t at, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// The moments of some numbers.
struct Moments {
  float mean, squares;  // squares: of the distances from the mean, added up
};
// The moments of two sets of `count` numbers together; the bits are the same whichever comes first.
__device__ inline Moments together(const Moments& a, const Moments& b, float count) {
  const float distance = a.mean - b.mean;
  return {0.5F * (a.mean + b.mean), fmaf(distance * distance, 0.5F * count, a.squares + b.squares)};
}

// Lanes 8 q to 8 q + 7 have rows q + 0, 4, 8, 12 in each block.
template <int kCluster>
struct Meeting {
  uint32_t at, barrier, parity;

  // Eight lanes have the same rows and moments; each sends those of two rows to one block.
  __device__ void send(const Moments (&own)[kRows], uint32_t rank, int lane) const {
    const int to = lane % 8 / 2;
    const bool second = lane % 2 != 0;
    arrive_and_expect(barrier, kCluster * kSentBytes);
    if (to < kCluster) {
      send_to(at + rank * kSentBytes + (lane / 8 * 2 + lane % 2) * sizeof(float4), to,
              {second ? own[2].mean : own[0].mean, second ? own[2].squares : own[0].squares,
               second ? own[3].mean : own[1].mean, second ? own[3].squares : own[1].squares},
              barrier);
    }
  }

  // Shared memory is not cached between blocks, so this need not wait for the cluster, which would empty the L1 cache.
  __device__ void receive(Moments (&all)[kRows], int lane) const {
    wait_barrier(barrier, parity);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Moments of[kCluster][2];
#pragma unroll
      for (int block = 0; block < kCluster; ++block) {
        const uint32_t from = at + block * kSentBytes + (lane / 8 * 2 + half) * static_cast<uint32_t>(sizeof(float4));
        const uint4 v = load_shared(from);
        of[block][0] = {__uint_as_float(v.x), __uint_as_float(v.y)};
        of[block][1] = {__uint_as_float(v.z), __uint_as_float(v.w)};
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        all[2 * half + i] = together(of[0][i], of[1][i], kTileCols);
        if constexpr (kCluster == 4) {
          all[2 * half + i] = together(all[2 * half + i], together(of[2][i], of[3][i], kTileCols), 2 * kTileCols);
        }
      }
    }
  }
};

// Loads 16 bytes, or zeros if !where.
__device__ inline uint4 load_16(const void* from, bool where) {
  return where ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}

// Predicated: stores only if `where`, without branching.
__device__ inline void store_8(float* to, float x, float y, bool where) {
  asm volatile(
      "{\n"
      ".reg .pred where;\n"
      "setp.ne.b32 where, %3, 0;\n"
      "@where st.global.v2.f32 [%0], {%1, %2};\n"
      "}" ::"l"(to),
      "f"(x), "f"(y), "r"(static_cast<int>(where))
      : "memory");
}

__device__ inline int col_of(int rank, int lane) { return rank * kTileCols + lane % 8 * 8; }  // the lane's first one
using Units = uint4[kRows];  // a lane's units of one part

// Fetches the residual of the rows from first_row on.
template <class H>
__device__ void fetch_residual(Units& residual, const NormArguments<H>& a, int first_row, int col, int lane) {
  const int row = first_row + lane / 8;
  const H* from = a.residual + row * a.residual_stride + col;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    residual[i] = load_16(from, row + 4 * i < a.rows);
    from += 4 * a.residual_stride;
  }
}

// Finishes a warp's rows. The sum takes the branch's place in shared memory until the row's moments are known.
template <class H, int kCluster>
struct Finisher {
  const NormArguments<H>& a;
  const Parameters& parameters;
  PhiloxRows random;
  int rank, lane;

  __device__ Finisher(const NormArguments<H>& arguments, const Parameters& of_columns, int own_rank, int own_lane)
      : a(arguments),
        parameters(of_columns),
        random(*reinterpret_cast<const PhiloxRows*>(of_columns.random)),
        rank(own_rank),
        lane(own_lane) {}

  __device__ int col() const { return col_of(rank, lane); }
  // Unit lane % 8 of row r lies at place lane % 8 ^ r % 8 of its row of 128 bytes.
  __device__ uint32_t place(uint32_t chunk, int part, int i) const {
    const int r = lane / 8 + 4 * i;
    return chunk + part * kChunkBytes + r * 128 + ((lane % 8 ^ r % 8) << 4);
  }

  // Replaces the dropped elements by 0; the others are scaled later.
  __device__ void drop(Units& branch, int row, int part) const {
    const uint4 column = parameters.columns[part * kPartUnits + lane % 8];
    uint32_t lanes[kRows][4];
    random.lanes(lanes, row, {column.x, column.y, column.z, column.w});
    const uint32_t below = (a.dropout.threshold - 1) * 0x10001;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      branch[i].x = quick_keep_pair<H>(branch[i].x, lanes[i][0], below);
      branch[i].y = quick_keep_pair<H>(branch[i].y, lanes[i][1], below);
      branch[i].z = quick_keep_pair<H>(branch[i].z, lanes[i][2], below);
      branch[i].w = quick_keep_pair<H>(branch[i].w, lanes[i][3], below);
    }
  }

  // residual + branch * scale, rounded to H.
  __device__ uint4 sum_of(const uint4& residual, const uint4& branch) const {
    const float scale = a.dropout.scale;
    const auto sum = [scale](uint32_t x, uint32_t y) {
      return pack<H>(fmaf(Half<H>::low(y), scale, Half<H>::low(x)), fmaf(Half<H>::high(y), scale, Half<H>::high(x)));
    };
    return {sum(residual.x, branch.x), sum(residual.y, branch.y), sum(residual.z, branch.z), sum(residual.w, branch.w)};
  }

  // Computes sum = residual + dropout(branch) and the moments of a lane's elements of each row. Distances are from the
  // first element, whose own distance from the mean is among the squares, so no more than five bits are lost. residual:
  // that of this chunk's first part; on return that of the first part of the chunk that begins at next_row.
  __device__ void add_branch(Moments (&own)[kRows], Units& residual, uint32_t chunk, int first_row,
                             int next_row) const {
    const int row = first_row + lane / 8;
    H* to = a.sum + row * a.sum_stride + col();
    float first[kRows] = {}, totals[kRows] = {}, squares[kRows] = {};
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      Units v;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[i] = load_shared(place(chunk, part, i));
      }
      if (a.dropout.threshold > 0) {
        drop(v, row, part);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[i] = sum_of(residual[i], v[i]);
      }
      const bool last = part == kParts - 1;
      fetch_residual(residual, a, last ? next_row : first_row, col() + (last ? 0 : part + 1) * kChunkCols, lane);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        store_16(to + 4 * i * a.sum_stride, v[i], row + 4 * i < a.rows);
        store_shared(place(chunk, part, i), v[i]);
        const uint32_t pairs[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        first[i] = part == 0 ? Half<H>::low(pairs[0]) : first[i];
        float low_total = 0, high_total = 0, low_squares = 0, high_squares = 0;
#pragma unroll
        for (const uint32_t pair : pairs) {
          const float low = Half<H>::low(pair) - first[i], high = Half<H>::high(pair) - first[i];
          low_total += low;
          high_total += high;
          low_squares = fmaf(low, low, low_squares);
          high_squares = fmaf(high, high, high_squares);
        }
        totals[i] += low_total + high_total;
        squares[i] += low_squares + high_squares;
      }
      to += kChunkCols;
    }
    constexpr float kCount = 8 * kParts;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float mean = totals[i] * (1 / kCount);
      own[i] = {first[i] + mean, fmaxf(fmaf(-mean, totals[i], squares[i]), 0.0F)};
    }
  }

  // Combines the lanes' moments to those of a row's 256 columns, in each of the eight lanes that have the row.
  __device__ static void gather(Moments (&own)[kRows]) {
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
#pragma unroll
      for (Moments& m : own) {
        const Moments other = {__shfl_xor_sync(0xFFFFFFFF, m.mean, distance),
                               __shfl_xor_sync(0xFFFFFFFF, m.squares, distance)};
        m = together(m, other, 8 * kParts * distance);
      }
    }
  }

  // One block writes the statistics.
  __device__ void normalise(Units (&v)[kParts], const Moments (&all)[kRows], int first_row) const {
    const int row = first_row + lane / 8;
    float rstd[kRows], offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rstd[i] = rsqrtf(all[i].squares * a.share + static_cast<float>(kNormEpsilon));
      offset[i] = -all[i].mean * rstd[i];
      store_8(a.statistics + (row + 4 * i) * a.statistics_stride, all[i].mean, rstd[i],
              rank == 0 && lane % 8 == i && row + 4 * i < a.rows);
    }
    H* const to = a.normed + row * a.normed_stride + col();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float4 of_columns[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        of_columns[k] = parameters.norm[k][part * kPartUnits + lane % 8];
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const auto norm = [&](uint32_t pair, const float4& two) {
          return pack<H>(fmaf(fmaf(Half<H>::low(pair), rstd[i], offset[i]), two.x, two.y),
                         fmaf(fmaf(Half<H>::high(pair), rstd[i], offset[i]), two.z, two.w));
        };
        uint4& u = v[part][i];
        u = {norm(u.x, of_columns[0]), norm(u.y, of_columns[1]), norm(u.z, of_columns[2]), norm(u.w, of_columns[3])};
        store_16(to + part * kChunkCols + 4 * i * a.normed_stride, u, row + 4 * i < a.rows);
      }
    }
  }

  // Finishes the chunk in shared memory, from row `row` on, and arrives at `empty` (unless 0) when its memory is free.
  __device__ void finish(Units& residual, uint32_t chunk, int row, const Meeting<kCluster>& meeting, uint32_t empty,
                         int next_row) const {
    Moments moments[kRows];
    add_branch(moments, residual, chunk, row, next_row);
    gather(moments);
    meeting.send(moments, rank, lane);
    Units v[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        v[part][i] = load_shared(place(chunk, part, i));
      }
    }
    __syncwarp();
    if (empty != 0 && lane == 0) {
      arrive(empty);
    }
    meeting.receive(moments, lane);
    normalise(v, moments, row);
  }
};

// Called in all threads of the block.
template <class H>
__device__ void fetch_parameters(Parameters& to, const NormArguments<H>& a, int rank) {
  const int thread = threadIdx.x;
  if (thread < kTileCols) {
    const int col = rank * kTileCols + thread, unit = thread / 8, k = thread % 8 / 2, second = thread % 2;
    float2* const norm = reinterpret_cast<float2*>(&to.norm[k][unit]);
    norm[second] = {a.gamma[col], a.beta[col]};
    float* const bias = reinterpret_cast<float*>(&to.bias[unit / 2][k]);
    bias[unit % 2 * 2 + second] = a.bias != nullptr ? to_float(a.bias[col]) : 0.0F;
  } else if (thread < kTileCols + kUnits) {
    const PhiloxRows random(a.dropout);
    const auto column = random.column(rank * kUnits + thread - kTileCols);
    to.columns[thread - kTileCols] = {column.words[0], column.words[1], column.words[2], column.words[3]};
    if (thread == kTileCols) {
      *reinterpret_cast<PhiloxRows*>(to.random) = random;
    }
  }
}

#endif

}  // namespace tandem::backend::cuda
