#include <cuda_pipeline.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_row.cuh"

namespace tandem {

namespace {

using namespace cuda;

struct Arguments {
  Bf16* dresidual;  // may be dsum or dnormed
  Bf16* dbranch;    // or null
  const Bf16* dnormed;
  const Bf16* dsum;  // or null
  const Bf16* sum;
  const float *statistics, *gamma;
  int64_t dresidual_stride, dbranch_stride, dnormed_stride, dsum_stride, sum_stride, statistics_stride;
  int64_t rows;
  int cols;
  float share;  // 1 / cols
  DropoutArguments dropout;
};

// Blocks that a multiprocessor holds at one time.
template <class Row>
constexpr int kResident = Row::kWhole&& Row::kVectors <= 2 ? 2 : 1;

// Adds up what the rows' threads hold for the same columns; the sums end with the block's first row of threads.
template <class Row>
__device__ void add_over_places(float (&sums)[2][Row::kVectors][8]) {
  constexpr int kHalf = Row::kBlock / 2;
  __shared__ float shared[2 * Row::kVectors * 8][kHalf];
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int threads = kHalf; threads >= Row::kThreads; threads /= 2) {
    float* column = &shared[0][me % threads];
    if (me >= threads && me < 2 * threads) {
#pragma unroll
      for (int e = 0; e < 2 * Row::kVectors * 8; ++e) {
        column[e * kHalf] = sums[e / (8 * Row::kVectors)][e / 8 % Row::kVectors][e % 8];
      }
    }
    __syncthreads();
    if (me < threads) {
#pragma unroll
      for (int e = 0; e < 2 * Row::kVectors * 8; ++e) {
        sums[e / (8 * Row::kVectors)][e / 8 % Row::kVectors][e % 8] += column[e * kHalf];
      }
    }
    __syncthreads();
  }
}

// What a thread reads of a row. Whole vectors of the row that follows are on their way into shared memory while this
// one is worked on; a thread reads back only what it has copied itself, so no barrier is needed.
template <class Row>
struct Inputs {
  static constexpr bool kAhead = Row::kWhole && Row::kVectors <= 2;
  using Room = uint4[kAhead ? 3 : 1][Row::kVectors][Row::kBlock];

  Bf16x8 dnormed[Row::kVectors], sum[Row::kVectors], dsum[Row::kVectors] = {};

  // Returns the row's mean and rstd, which are on their way too.
  __device__ static float2 fetch(Room& room, const Arguments& a, int64_t row) {
    if constexpr (kAhead) {
      copy(room[0], a.dnormed + row * a.dnormed_stride, a.cols);
      copy(room[1], a.sum + row * a.sum_stride, a.cols);
      if (a.dsum != nullptr) {
        copy(room[2], a.dsum + row * a.dsum_stride, a.cols);
      }
      __pipeline_commit();
    }
    const float* statistics = a.statistics + row * a.statistics_stride;
    return {statistics[0], statistics[1]};
  }

  // The row that was fetched last.
  __device__ Inputs(const Room& room, const Arguments& a, int64_t row) {
    if constexpr (kAhead) {
      __pipeline_wait_prior(0);
      read(dnormed, room[0], a.cols);
      read(sum, room[1], a.cols);
      if (a.dsum != nullptr) {
        read(dsum, room[2], a.cols);
      }
    } else {
      Row::load(dnormed, a.dnormed + row * a.dnormed_stride, a.cols);
      Row::load(sum, a.sum + row * a.sum_stride, a.cols);
      if (a.dsum != nullptr) {
        Row::load(dsum, a.dsum + row * a.dsum_stride, a.cols);
      }
    }
  }

 private:
  __device__ static void copy(uint4 (&to)[Row::kVectors][Row::kBlock], const Bf16* row, int cols) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      if (Row::has(v, 0, cols)) {
        __pipeline_memcpy_async(&to[v][threadIdx.x], row + Row::column(v), 16);
      }
    }
  }
  __device__ static void read(Bf16x8 (&to)[Row::kVectors], const uint4 (&from)[Row::kVectors][Row::kBlock], int cols) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      to[v] = Row::has(v, 0, cols) ? load_vector(&from[v][threadIdx.x]) : Bf16x8{};
    }
  }
};

// dresidual = d, dbranch = d * mask.
template <class Row>
__device__ void write(const Arguments& a, int64_t row, const DropoutMask& mask, float (&d)[Row::kVectors][8]) {
  Bf16x8 packed[Row::kVectors];
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    packed[v] = Bf16x8::pack(d[v]);
  }
  Row::store(a.dresidual + row * a.dresidual_stride, a.cols, packed);
  if (a.dbranch == nullptr) {
    return;
  }
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    if (mask.on()) {
      mask.apply(d[v], row, Row::group(v));
      packed[v] = Bf16x8::pack(d[v]);
    }
  }
  Row::store(a.dbranch + row * a.dbranch_stride, a.cols, packed);
}

// With x = (sum - mean) * rstd and g = dnormed * gamma: d = rstd * (g - mean(g) - x * mean(g x)) + dsum.
// The block's shares of dgamma and dbeta go to parts[blockIdx.x], [2, cols].
template <class Row>
__global__ void __launch_bounds__(Row::kBlock, kResident<Row>)
    residual_norm_backward_kernel(float* parts, const Arguments a) {
  await_previous();
  constexpr int kVectors = Row::kVectors;
  // Two in turn: a row's threads write one again only behind the barrier of the other.
  __shared__ float2 shared[2][Row::kBlock / kWarp];
  __shared__ typename Inputs<Row>::Room room;
  int turn = 0;
  const DropoutMask mask(a.dropout);
  float dparameters[2][kVectors][8] = {};  // dgamma, dbeta
  const int64_t step = int64_t{gridDim.x} * Row::kRowsPerBlock;
  float2 statistics{0, 0};
  if (Row::first_row() < a.rows) {
    statistics = Inputs<Row>::fetch(room, a, Row::first_row());
  }
  for (int64_t row = Row::first_row(); row < a.rows; row += step, turn ^= 1) {
    const Inputs<Row> in(room, a, row);
    const float mean = statistics.x, rstd = statistics.y;
    float d[kVectors][8], x[kVectors][8];
    float2 sums{0, 0};  // of g, of g x
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float gamma[8];
      Row::load_parameters(gamma, a.gamma, v, a.cols);
      in.dnormed[v].unpack(d[v]);
      in.sum[v].unpack(x[v]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[v][i] = (x[v][i] - mean) * rstd;
        dparameters[0][v][i] += d[v][i] * x[v][i];
        dparameters[1][v][i] += d[v][i];
        d[v][i] *= gamma[i];  // 0 where there is no column
        sums = add(sums, {d[v][i], d[v][i] * x[v][i]});
      }
    }
    if (row + step < a.rows) {
      statistics = Inputs<Row>::fetch(room, a, row + step);
    }
    sums = Row::sum(sums, shared[turn]);
    const float mean_g = sums.x * a.share, mean_gx = sums.y * a.share;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float more[8];
      in.dsum[v].unpack(more);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        d[v][i] = (d[v][i] - mean_g - x[v][i] * mean_gx) * rstd + more[i];
      }
    }
    write<Row>(a, row, mask, d);
  }
  add_over_places<Row>(dparameters);
  if (Row::place() == 0) {
    float* to = parts + int64_t{blockIdx.x} * 2 * a.cols;
    Row::each(a.cols, [&](int v, int i) {
      to[Row::column(v) + i] = dparameters[0][v][i];
      to[a.cols + Row::column(v) + i] = dparameters[1][v][i];
    });
  }
}

// dgamma, dbeta += the sums over `count` parts of [2, cols]. A block of 32 x 32 threads has 32 of the 2 cols columns.
__global__ void add_parts_kernel(float* dgamma, float* dbeta, const float* parts, int count, int cols) {
  await_previous();
  __shared__ float sums[kWarp][kWarp + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kWarp;
  float sum = 0;
  if (first + x < 2 * cols) {
#pragma unroll 8
    for (int i = y; i < count; i += kWarp) {
      sum += parts[int64_t{i} * 2 * cols + first + x];
    }
  }
  sums[y][x] = sum;
  __syncthreads();
  sum = sum_of_warp(sums[x][y]);
  const int column = first + y;
  if (x == 0 && column < 2 * cols) {
    (column < cols ? dgamma[column] : dbeta[column - cols]) += sum;
  }
}

}  // namespace

void CudaBackend::residual_norm_backward(const View& dresidual, const View& dbranch, const View& dgamma,
                                         const View& dbeta, const View& dnormed, const View& dsum, const View& sum,
                                         const View& statistics, const View& gamma, const Dropout& dropout) {
  require(dnormed.dtype == DType::bf16 && sum.dtype == DType::bf16 && gamma.dtype == DType::f32 &&
              dgamma.dtype == DType::f32 && statistics.dtype == DType::f32,
          "residual_norm_backward on a GPU takes bf16 rows and f32 parameters, not {} and {}", name_of(dnormed.dtype),
          name_of(gamma.dtype));
  if (dnormed.size() == 0) {
    return;
  }
  const Arguments arguments{data<Bf16>(dresidual),
                            data<Bf16>(dbranch),
                            data<const Bf16>(dnormed),
                            data<const Bf16>(dsum),
                            data<const Bf16>(sum),
                            data<const float>(statistics),
                            data<const float>(gamma),
                            dresidual.stride,
                            dbranch.stride,
                            dnormed.stride,
                            dsum.stride,
                            sum.stride,
                            statistics.stride,
                            dnormed.rows,
                            static_cast<int>(dnormed.cols),
                            1.0F / static_cast<float>(dnormed.cols),
                            DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(dresidual) && vectors_of_8(dbranch) && vectors_of_8(dnormed) &&
                       vectors_of_8(dsum) && vectors_of_8(sum) && aligned_16(gamma);
  with_norm_row(dnormed.cols, vectors, [&]<class Row>() {
    const int64_t wanted = divide_up(dnormed.rows, Row::kRowsPerBlock);
    const int blocks = static_cast<int>(std::min<int64_t>(wanted, int64_t{processors_} * kResident<Row>));
    const int cols = static_cast<int>(dnormed.cols);
    float* parts = scratch<float>(int64_t{blocks} * 2 * cols);
    launch("residual_norm_backward", residual_norm_backward_kernel<Row>, {blocks, Row::kBlock, 0, stream_}, parts,
           arguments);
    const auto groups = static_cast<unsigned>(divide_up(2 * cols, kWarp));
    launch("add_parts", add_parts_kernel, {groups, dim3(kWarp, kWarp), 0, stream_}, data<float>(dgamma),
           data<float>(dbeta), parts, blocks, cols);
  });
}

}  // namespace tandem
