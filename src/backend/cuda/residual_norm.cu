#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_row.cuh"

namespace tandem {

namespace {

using namespace cuda;

struct Arguments {
  Bf16* sum;  // or null
  Bf16* normed;
  float* statistics;
  const Bf16* residual;
  const Bf16* branch;  // or null
  const float *gamma, *beta;
  int64_t sum_stride, normed_stride, statistics_stride, residual_stride, branch_stride;
  int64_t rows, cols;
  DropoutArguments dropout;
};

// x = residual + dropout(branch), rounded as memory holds it, so that the backward pass normalises the very same
// numbers. Absent columns are 0.
template <class Row>
__device__ void add_branch(float (&x)[Row::kVectors][8], const Arguments& a, int64_t row) {
  float added[Row::kVectors][8];
  Row::load(x, a.residual + row * a.residual_stride, a.cols);
  if (a.branch == nullptr) {
    return;
  }
  Row::load(added, a.branch + row * a.branch_stride, a.cols);
  const DropoutMask mask(a.dropout);
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    if (mask.on()) {
      mask.apply(added[v], row, Row::group(v));
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[v][i] = __bfloat162float(__float2bfloat16_rn(x[v][i] + added[v][i]));
    }
  }
}

template <class Row>
__global__ void __launch_bounds__(Row::kBlock) residual_norm_kernel(Arguments a) {
  __shared__ float shared[2][Row::kBlock / kWarp];
  const int64_t row = Row::first_row();
  if (row >= a.rows) {
    return;
  }
  float x[Row::kVectors][8];
  add_branch<Row>(x, a, row);
  float total = 0;
  Row::each(a.cols, [&](int v, int i) { total += x[v][i]; });
  const float mean = Row::sum(total, shared[0]) / static_cast<float>(a.cols);
  float squares = 0;
  Row::each(a.cols, [&](int v, int i) {
    const float distance = x[v][i] - mean;
    squares += distance * distance;
  });
  const float variance = Row::sum(squares, shared[1]) / static_cast<float>(a.cols);
  const float rstd = 1.0F / sqrtf(variance + 1e-6F);
  if (Row::thread() == 0) {
    a.statistics[row * a.statistics_stride] = mean;
    a.statistics[row * a.statistics_stride + 1] = rstd;
  }
  if (a.sum != nullptr) {
    Row::store(a.sum + row * a.sum_stride, a.cols, x);
  }
  float gamma[8], beta[8];
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    Row::load_parameters(gamma, a.gamma, v, a.cols);
    Row::load_parameters(beta, a.beta, v, a.cols);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[v][i] = (x[v][i] - mean) * rstd * gamma[i] + beta[i];
    }
  }
  Row::store(a.normed + row * a.normed_stride, a.cols, x);
}

}  // namespace

void CudaBackend::residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                                const View& branch, const View& gamma, const View& beta, const Dropout& dropout) {
  require(normed.dtype == DType::bf16 && residual.dtype == DType::bf16 && gamma.dtype == DType::f32 &&
              statistics.dtype == DType::f32,
          "residual_norm on a GPU takes bf16 rows and f32 parameters, not {} and {}", name_of(normed.dtype),
          name_of(gamma.dtype));
  if (normed.size() == 0) {
    return;
  }
  const Arguments arguments{data<Bf16>(sum),
                            data<Bf16>(normed),
                            data<float>(statistics),
                            data<const Bf16>(residual),
                            data<const Bf16>(branch),
                            data<const float>(gamma),
                            data<const float>(beta),
                            sum.stride,
                            normed.stride,
                            statistics.stride,
                            residual.stride,
                            branch.stride,
                            normed.rows,
                            normed.cols,
                            DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(sum) && vectors_of_8(normed) && vectors_of_8(residual) && vectors_of_8(branch) &&
                       aligned_16(gamma) && aligned_16(beta);
  with_norm_row(normed.cols, vectors, [&]<class Row>() {
    const auto blocks = static_cast<unsigned>(divide_up(normed.rows, Row::kRowsPerBlock));
    residual_norm_kernel<Row><<<blocks, Row::kBlock, 0, stream_>>>(arguments);
    check_launch("residual_norm");
  });
}

}  // namespace tandem
