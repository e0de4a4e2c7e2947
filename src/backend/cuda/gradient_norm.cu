#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

// parts[blockIdx.x] = the sum of squares of the block's elements, in double, so that no square overflows.
template <bool kVector>
__global__ void __launch_bounds__(kFlatThreads, kFlatBlocks)
    squares_kernel(double* parts, const float* gradients, int64_t n) {
  await_previous();
  constexpr int kTogether = 4;  // loads in flight
  __shared__ double shared[kFlatThreads / kWarp];
  double sums[4] = {};
  const int64_t step = int64_t{4} * kFlatThreads * gridDim.x;
  for (int64_t i = 4 * (int64_t{kFlatThreads} * blockIdx.x + threadIdx.x); i < n; i += kTogether * step) {
    float4 values[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      values[k] = i + k * step < n ? load4<kVector>(gradients, i + k * step, n) : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      sums[0] += static_cast<double>(values[k].x) * static_cast<double>(values[k].x);
      sums[1] += static_cast<double>(values[k].y) * static_cast<double>(values[k].y);
      sums[2] += static_cast<double>(values[k].z) * static_cast<double>(values[k].z);
      sums[3] += static_cast<double>(values[k].w) * static_cast<double>(values[k].w);
    }
  }
  const double sum = sum_of_block<kFlatThreads>((sums[0] + sums[1]) + (sums[2] + sums[3]), shared);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
  }
}

// The sum of parts[0..count) by one block; thread 0 has it.
__device__ double sum_of_parts(const double* parts, int64_t count, double* shared) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kFlatThreads) {
    sum += parts[i];
  }
  return sum_of_block<kFlatThreads>(sum, shared);
}

// Runs as one block.
__global__ void __launch_bounds__(kFlatThreads) add_parts_kernel(double* sum, const double* parts, int count) {
  await_previous();
  __shared__ double shared[kFlatThreads / kWarp];
  const double total = sum_of_parts(parts, count, shared);
  if (threadIdx.x == 0) {
    *sum = total;
  }
}

// Runs as one block.
__global__ void __launch_bounds__(kFlatThreads)
    write_update_kernel(UpdateState* update, const double* parts, int64_t count, UpdateSettings settings) {
  await_previous();
  __shared__ double shared[kFlatThreads / kWarp];
  const double sum = sum_of_parts(parts, count, shared);
  if (threadIdx.x != 0) {
    return;
  }
  const double norm = sqrt(sum), max_norm = static_cast<double>(settings.max_norm);
  const bool finite = isfinite(sum);
  const uint32_t updates = update->updates + (finite ? 1 : 0);
  const double t = updates;
  UpdateState result;
  result.norm = norm;
  result.clip_factor = finite && max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0F;
  result.finite = finite ? 1 : 0;
  result.updates = updates;
  result.bias_correction1 = static_cast<float>(1 - pow(static_cast<double>(settings.adam.beta1), t));
  result.bias_correction2 = static_cast<float>(1 - pow(static_cast<double>(settings.adam.beta2), t));
  result.average_decay = fminf(settings.average_decay, static_cast<float>((1 + t) / (10 + t)));
  *update = result;
}

}  // namespace

void op::SumOfSquares::run(CudaBackend& gpu) const {
  require(x.dtype == DType::f32, "a sum of squares on a GPU takes f32, not {}", name_of(x.dtype));
  const int64_t n = x.size();
  const int blocks = n == 0 ? 0 : flat_blocks(n, gpu.processors());
  double* parts = gpu.scratch<double>(blocks);
  if (blocks > 0) {
    const auto kernel = vectors_of_4(x) ? squares_kernel<true> : squares_kernel<false>;
    launch("squares", kernel, {blocks, kFlatThreads, 0, gpu.queue()}, parts, data<const float>(x), n);
  }
  launch("add_parts", add_parts_kernel, {1, kFlatThreads, 0, gpu.queue()}, data<double>(sum), parts, blocks);
}

void op::PrepareUpdate::run(CudaBackend& gpu) const {
  launch("write_update", write_update_kernel, {1, kFlatThreads, 0, gpu.queue()}, update, data<const double>(sums),
         sums.size(), settings);
}

}  // namespace tandem::backend
