#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <bool kVector>
__global__ void __launch_bounds__(kFlatThreads, kFlatBlocks)
    moving_average_kernel(float* average, const float* masters, int64_t n, const UpdateState* update) {
  await_previous();
  if (update->finite == 0) {
    return;
  }
  const float rest = static_cast<float>(1 - static_cast<double>(update->average_decay));
  for_fours(n, [&](int64_t i) {
    float4 old = load4<kVector>(average, i, n);
    const float4 now = load4<kVector>(masters, i, n);
    old.x += (now.x - old.x) * rest;
    old.y += (now.y - old.y) * rest;
    old.z += (now.z - old.z) * rest;
    old.w += (now.w - old.w) * rest;
    store4<kVector>(average, i, n, old);
  });
}

}  // namespace

void op::MovingAverage::run(CudaBackend& gpu) const {
  require(average.dtype == DType::f32 && masters.dtype == DType::f32,
          "moving_average on a GPU takes f32 weights, not {} and {}", name_of(average.dtype), name_of(masters.dtype));
  const int64_t n = masters.size();
  if (n == 0) {
    return;
  }
  const bool vectors = vectors_of_4(average) && vectors_of_4(masters);
  const auto kernel = vectors ? moving_average_kernel<true> : moving_average_kernel<false>;
  launch("moving_average", kernel, {flat_blocks(n, gpu.processors()), kFlatThreads, 0, gpu.queue()},
         data<float>(average), data<const float>(masters), n, update);
}

}  // namespace tandem::backend
