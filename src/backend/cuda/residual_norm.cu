#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_row.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class H>
struct Arguments {
  H* sum;  // may be null
  H* normed;
  float* statistics;
  const H* residual;
  const H* branch;  // may be null
  const float *gamma, *beta;
  uint32_t sum_stride, normed_stride, statistics_stride, residual_stride, branch_stride;
  uint32_t rows;
  int cols;
  float share;  // 1 / cols
  DropoutArguments dropout;
};

// Threads and blocks that a multiprocessor holds at one time.
template <class Row>
constexpr int kThreadsAtOnce = Row::kVectors > 2 ? 512
                               : Row::kWhole     ? 1024
                                                 : 768;
template <class Row>
constexpr int kResident = kThreadsAtOnce<Row> / Row::kBlock;

// x = residual + dropout(branch), rounded to 16 bits, so that the backward pass normalises the same numbers. Absent
// columns are 0.
template <class Row>
__device__ void add_branch(Half8<typename Row::Type> (&x)[Row::kVectors], const Arguments<typename Row::Type>& a,
                           uint32_t row) {
  Row::load(x, a.residual + row * a.residual_stride, a.cols);
  if (a.branch == nullptr) {
    return;
  }
  Half8<typename Row::Type> branch[Row::kVectors];
  Row::load(branch, a.branch + row * a.branch_stride, a.cols);
  const DropoutMask mask(a.dropout);
  Philox words[Row::kVectors] = {};  // computed while the rows load; if dropout is off all are kept, times 1
  if (mask.on()) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      words[v] = mask.lanes(row, Row::group(v));
    }
  }
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    float sums[8], added[8];
    x[v].unpack(sums);
    branch[v].unpack(added);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[2 * i] += added[2 * i] * (mask.keeps_low(words[v][i]) ? mask.scale() : 0.0F);
      sums[2 * i + 1] += added[2 * i + 1] * (mask.keeps_high(words[v][i]) ? mask.scale() : 0.0F);
    }
    x[v] = Half8<typename Row::Type>::pack(sums);
  }
}

template <class Row>
__global__ void __launch_bounds__(Row::kBlock, kResident<Row>)
    residual_norm_kernel(const __grid_constant__ Arguments<typename Row::Type> a) {
  await_previous();
  __shared__ float shared[2][Row::kBlock / kWarp];
  const uint32_t row = Row::first_row();
  if (row >= a.rows) {
    return;
  }
  Half8<typename Row::Type> packed[Row::kVectors];
  add_branch<Row>(packed, a, row);
  if (a.sum != nullptr) {
    Row::store(a.sum + row * a.sum_stride, a.cols, packed);
  }
  float x[Row::kVectors][8];
  float total = 0;
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    packed[v].unpack(x[v]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      total += x[v][i];
    }
  }
  const float mean = Row::sum(total, shared[0]) * a.share;
  float squares = 0;
  Row::each(a.cols, [&](int v, int i) {
    const float distance = x[v][i] - mean;
    squares += distance * distance;
  });
  const float rstd = rsqrtf(Row::sum(squares, shared[1]) * a.share + static_cast<float>(kNormEpsilon));
  if (Row::thread() == 0) {
    a.statistics[row * a.statistics_stride] = mean;
    a.statistics[row * a.statistics_stride + 1] = rstd;
  }
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    float gamma[8], beta[8];
    Row::load_parameters(gamma, a.gamma, v, a.cols);
    Row::load_parameters(beta, a.beta, v, a.cols);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[v][i] = (x[v][i] - mean) * rstd * gamma[i] + beta[i];
    }
    packed[v] = Half8<typename Row::Type>::pack(x[v]);
  }
  Row::store(a.normed + row * a.normed_stride, a.cols, packed);
}

}  // namespace

void op::ResidualNorm::run(CudaBackend& gpu) const {
  require(normed.dtype == DType::bf16 && residual.dtype == DType::bf16 && gamma.dtype == DType::f32 &&
              statistics.dtype == DType::f32,
          "residual_norm on a GPU takes bf16 rows and f32 parameters, not {} and {}", name_of(normed.dtype),
          name_of(gamma.dtype));
  if (normed.size() == 0) {
    return;
  }
  const Arguments<Bf16> arguments{data<Bf16>(sum),
                                  data<Bf16>(normed),
                                  data<float>(statistics),
                                  data<const Bf16>(residual),
                                  data<const Bf16>(branch),
                                  data<const float>(gamma),
                                  data<const float>(beta),
                                  stride_of(sum),
                                  stride_of(normed),
                                  stride_of(statistics),
                                  stride_of(residual),
                                  stride_of(branch),
                                  static_cast<uint32_t>(normed.rows),
                                  static_cast<int>(normed.cols),
                                  1.0F / static_cast<float>(normed.cols),
                                  DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(sum) && vectors_of_8(normed) && vectors_of_8(residual) && vectors_of_8(branch) &&
                       aligned_16(gamma) && aligned_16(beta);
  with_norm_row<Bf16, 128>(normed.cols, vectors, [&]<class Row>() {
    launch("residual_norm", residual_norm_kernel<Row>,
           {divide_up(normed.rows, Row::kRowsPerBlock), Row::kBlock, 0, gpu.queue()}, arguments);
  });
}

}  // namespace tandem::backend
