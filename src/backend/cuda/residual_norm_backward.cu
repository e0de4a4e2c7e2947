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
  int64_t rows, cols;
  DropoutArguments dropout;
};

// Blocks that a multiprocessor holds at one time.
template <class Row>
constexpr int kResident = Row::kVectors <= 2 ? 2 : 1;

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

// With x = (sum - mean) * rstd and g = dnormed * gamma: d = rstd * (g - mean(g) - x * mean(g x)) + dsum.
// The block's shares of dgamma and dbeta go to parts[blockIdx.x], [2, cols].
template <class Row>
__global__ void __launch_bounds__(Row::kBlock, kResident<Row>)
    residual_norm_backward_kernel(float* parts, const Arguments a) {
  constexpr int kVectors = Row::kVectors;
  // Two in turn: a row's threads write one again only behind the barrier of the other.
  __shared__ float2 shared[2][Row::kBlock / kWarp];
  int turn = 0;
  const DropoutMask mask(a.dropout);
  const float share = 1.0F / static_cast<float>(a.cols);
  float dparameters[2][kVectors][8] = {};  // dgamma, dbeta
  for (int64_t row = Row::first_row(); row < a.rows; row += int64_t{gridDim.x} * Row::kRowsPerBlock, turn ^= 1) {
    float d[kVectors][8], x[kVectors][8], more[kVectors][8];
    Row::load(d, a.dnormed + row * a.dnormed_stride, a.cols);
    Row::load(x, a.sum + row * a.sum_stride, a.cols);
    if (a.dsum != nullptr) {
      Row::load(more, a.dsum + row * a.dsum_stride, a.cols);
    }
    const float mean = a.statistics[row * a.statistics_stride];
    const float rstd = a.statistics[row * a.statistics_stride + 1];
    float2 sums{0, 0};  // of g, of g x
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float gamma[8];
      Row::load_parameters(gamma, a.gamma, v, a.cols);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[v][i] = (x[v][i] - mean) * rstd;
        dparameters[0][v][i] += d[v][i] * x[v][i];
        dparameters[1][v][i] += d[v][i];
        d[v][i] *= gamma[i];  // 0 where there is no column
        sums = add(sums, {d[v][i], d[v][i] * x[v][i]});
      }
    }
    sums = Row::sum(sums, shared[turn]);
    const float mean_g = sums.x * share, mean_gx = sums.y * share;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        d[v][i] = (d[v][i] - mean_g - x[v][i] * mean_gx) * rstd + (a.dsum != nullptr ? more[v][i] : 0.0F);
      }
    }
    Row::store(a.dresidual + row * a.dresidual_stride, a.cols, d);
    if (a.dbranch != nullptr) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (mask.on()) {
          mask.apply(d[v], row, Row::group(v));
        }
      }
      Row::store(a.dbranch + row * a.dbranch_stride, a.cols, d);
    }
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
  const Arguments arguments{data<Bf16>(dresidual),    data<Bf16>(dbranch),   data<const Bf16>(dnormed),
                            data<const Bf16>(dsum),   data<const Bf16>(sum), data<const float>(statistics),
                            data<const float>(gamma), dresidual.stride,      dbranch.stride,
                            dnormed.stride,           dsum.stride,           sum.stride,
                            statistics.stride,        dnormed.rows,          dnormed.cols,
                            DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(dresidual) && vectors_of_8(dbranch) && vectors_of_8(dnormed) &&
                       vectors_of_8(dsum) && vectors_of_8(sum) && aligned_16(gamma);
  with_norm_row(dnormed.cols, vectors, [&]<class Row>() {
    const int64_t wanted = divide_up(dnormed.rows, Row::kRowsPerBlock);
    const int blocks = static_cast<int>(std::min<int64_t>(wanted, int64_t{processors_} * kResident<Row>));
    const int cols = static_cast<int>(dnormed.cols);
    float* parts = scratch<float>(int64_t{blocks} * 2 * cols);
    residual_norm_backward_kernel<Row><<<blocks, Row::kBlock, 0, stream_>>>(parts, arguments);
    check_launch("residual_norm_backward");
    const auto groups = static_cast<unsigned>(divide_up(2 * cols, kWarp));
    add_parts_kernel<<<groups, dim3(kWarp, kWarp), 0, stream_>>>(data<float>(dgamma), data<float>(dbeta), parts, blocks,
                                                                 cols);
    check_launch("add_parts");
  });
}

}  // namespace tandem
