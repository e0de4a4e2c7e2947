#include <cuda_pipeline.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_sums.cuh"

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
  bool bias;    // the sums of dbranch are wanted
  DropoutArguments dropout;
};

// Blocks that a multiprocessor holds at one time.
template <class Row>
constexpr int kResident = Row::kWhole&& Row::kVectors <= 2 ? 2 : 1;

// What a thread reads of a row. Whole vectors of the row that follows are on their way into shared memory while this
// one is worked on; a thread reads back only what it has copied itself, so no barrier is needed.
template <class Row>
struct Inputs {
  static constexpr bool kAhead = Row::kWhole && Row::kVectors <= 2;
  using Room = uint4[kAhead ? 3 : 1][kAhead ? Row::kVectors : 1][Row::kBlock];

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
__device__ void write(const Arguments& a, int64_t row, const DropoutMask& mask, float (&d)[Row::kVectors][8],
                      BranchSums<Row>& sums) {
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
  if (a.bias) {
    sums.add(d);
  }
}

// With x = (sum - mean) * rstd and g = dnormed * gamma: d = rstd * (g - mean(g) - x * mean(g x)) + dsum.
// The block's shares of dgamma, dbeta and the branch's bias, if wanted, go to parts[blockIdx.x], [2 or 3, cols].
template <class Row>
__global__ void __launch_bounds__(Row::kBlock, kResident<Row>)
    residual_norm_backward_kernel(float* parts, const Arguments a) {
  await_previous();
  constexpr int kVectors = Row::kVectors;
  // Two in turn: a row's threads write one again only behind the barrier of the other.
  __shared__ float2 shared[2][Row::kBlock / kWarp];
  __shared__ BranchSums<Row> branch_sums;
  constexpr size_t kReduced = Row::kRowsPerBlock > 1 ? 8 * kVectors * Row::kBlock * sizeof(float) : 0;
  __shared__ alignas(16) uint8_t memory[std::max(sizeof(typename Inputs<Row>::Room), kReduced)];
  auto& room = reinterpret_cast<typename Inputs<Row>::Room&>(memory);  // while there are rows
  if (a.bias) {
    branch_sums.clear();
  }
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
    write<Row>(a, row, mask, d, branch_sums);
  }
  // In the last turn a block may have no row for some of its threads: they meet as often as the others.
  const int64_t first = int64_t{blockIdx.x} * Row::kRowsPerBlock;
  if (Row::kThreads > kWarp && a.rows > first && (a.rows - first - 1) % step < Row::first_row() - first) {
    Row::wait_for_row();
  }
  __syncthreads();
  float* to = parts + int64_t{blockIdx.x} * (a.bias ? 3 : 2) * a.cols;
  if (a.bias) {
    branch_sums.write(to + 2 * a.cols, a.cols);
  }
  add_over_places<Row>(dparameters, reinterpret_cast<float*>(memory));
  if (Row::place() == 0) {
    Row::each(a.cols, [&](int v, int i) {
      to[Row::column(v) + i] = dparameters[0][v][i];
      to[a.cols + Row::column(v) + i] = dparameters[1][v][i];
    });
  }
}

}  // namespace

void CudaBackend::residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                                         const View& dnormed, const View& dsum, const View& sum, const View& statistics,
                                         const View& gamma, const Dropout& dropout) {
  require(dnormed.dtype == DType::bf16 && sum.dtype == DType::bf16 && gamma.dtype == DType::f32 &&
              gradients.gamma.dtype == DType::f32 && statistics.dtype == DType::f32,
          "residual_norm_backward on a GPU takes bf16 rows and f32 parameters, not {} and {}", name_of(dnormed.dtype),
          name_of(gamma.dtype));
  const int cols = static_cast<int>(dnormed.cols);
  const bool bias = !gradients.branch_bias.empty();
  const Sums sums{{data<float>(gradients.gamma), data<float>(gradients.beta), data<float>(gradients.branch_bias)},
                  bias ? 3 : 2,
                  cols,
                  gradients.accumulate};
  if (dnormed.size() == 0) {
    if (cols > 0 && !gradients.accumulate) {
      late_sums_->add(sums, nullptr, 0);
    }
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
                            cols,
                            1.0F / static_cast<float>(cols),
                            bias,
                            DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(dresidual) && vectors_of_8(dbranch) && vectors_of_8(dnormed) &&
                       vectors_of_8(dsum) && vectors_of_8(sum) && aligned_16(gamma);
  with_norm_row(dnormed.cols, vectors, [&]<class Row>() {
    const int64_t wanted = divide_up(dnormed.rows, Row::kRowsPerBlock);
    const int blocks = static_cast<int>(std::min<int64_t>(wanted, int64_t{processors_} * kResident<Row>));
    float* parts = late_sums_->room(int64_t{blocks} * sums.count * cols);
    launch("residual_norm_backward", residual_norm_backward_kernel<Row>, {blocks, Row::kBlock, 0, stream_}, parts,
           arguments);
    late_sums_->add(sums, parts, blocks);
  });
}

}  // namespace tandem
