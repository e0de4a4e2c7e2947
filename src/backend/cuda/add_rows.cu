#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

constexpr int kThreads = 128;

// One block per row.
__global__ void __launch_bounds__(kThreads) add_rows_kernel(float* table, int64_t table_stride, const int32_t* ids,
                                                            const float* rows, int64_t rows_stride, int64_t cols) {
  await_previous();
  const int64_t id = ids[blockIdx.x];
  if (id < 0) {
    return;
  }
  float* to = table + id * table_stride;
  const float* from = rows + blockIdx.x * rows_stride;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    to[i] += from[i];
  }
}

}  // namespace

void op::AddRows::run(CudaBackend& gpu) const {
  require(table.dtype == DType::f32 && rows.dtype == DType::f32, "add_rows on a GPU takes f32, not {} and {}",
          name_of(table.dtype), name_of(rows.dtype));
  if (ids.cols == 0 || table.cols == 0) {
    return;
  }
  launch("add_rows", add_rows_kernel, {ids.cols, kThreads, 0, gpu.queue()}, data<float>(table), table.stride,
         data<const int32_t>(ids), data<const float>(rows), rows.stride, table.cols);
}

}  // namespace tandem::backend
