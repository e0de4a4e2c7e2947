#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/logit_row.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

// A logit and its id as one number, which is larger for a better candidate: ties go to the lower id. Never 0.
__device__ uint64_t key_of(float logit, int id) {
  const uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 becomes +0, which it equals
  const uint32_t rising = bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFF : 0x80000000);
  return uint64_t{rising} << 32 | (0xFFFFFFFF - static_cast<uint32_t>(id));
}

__device__ int id_of(uint64_t key) { return static_cast<int>(0xFFFFFFFF - static_cast<uint32_t>(key)); }

__device__ float logit_of(uint64_t key) {
  const auto rising = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(rising ^ ((rising >> 31) != 0 ? 0x80000000 : 0xFFFFFFFF));
}

__device__ uint64_t most_of_warp(uint64_t key) {
  const uint32_t high = __reduce_max_sync(0xFFFFFFFF, static_cast<uint32_t>(key >> 32));
  const uint32_t low = static_cast<uint32_t>(key >> 32) == high ? static_cast<uint32_t>(key) : 0;
  return uint64_t{high} << 32 | __reduce_max_sync(0xFFFFFFFF, low);
}

// The thread's best candidate after the last one taken, or 0 if it has no more. NaN counts as -infinity: such a row's
// probabilities are NaN, and its ids are still ids.
template <class Row>
__device__ uint64_t best_behind(const Row& row, float last_logit, int last_id) {
  float best = -INFINITY;
  int id = -1;
  row.each([&](float logit, int col) {
    logit = fmaxf(logit, -INFINITY);
    const bool left = logit < last_logit || (logit == last_logit && col > last_id);
    if (left && (logit > best || id < 0)) {
      best = logit;
      id = col;
    }
  });
  return id < 0 ? 0 : key_of(best, id);
}

template <class H>
struct Arguments {
  float* values;
  int32_t* ids;
  const H* logits;
  int64_t values_stride, ids_stride, stride, cols;
  int k;
};

// One block per row. The best of the block are found one after the other; a thread looks through its logits again only
// when its own best has been taken.
template <class Row>
__global__ void __launch_bounds__(Row::kThreads, Row::kBlocks)
    top_log_probabilities_kernel(const Arguments<typename Row::Type> a) {
  await_previous();
  constexpr int kWarps = Row::kThreads / kWarp;
  __shared__ float shared_most[kWarp];
  __shared__ float3 shared_sums[kWarp];
  __shared__ uint64_t shared_keys[2][kWarp];  // used in turn: one is rewritten only after the barrier of the other
  const int64_t r = blockIdx.x;
  Row row(a.logits + r * a.stride, a.cols);
  const float most = most_of_block<Row::kThreads>(row.largest(), shared_most);
  const float shift = most * kLog2E;
  float sum = 0;
  row.each([&](float logit, int) { sum += shifted_exp(logit, shift); });
  const float log_sum = logf(sums_of_block<Row::kThreads>({sum, 0, 0}, shared_sums).x);
  uint64_t mine = best_behind(row, INFINITY, -1);
  for (int i = 0; i < a.k; ++i) {
    row.stay_packed();
    uint64_t* shared = shared_keys[i % 2];
    const uint64_t of_warp = most_of_warp(mine);
    if (threadIdx.x % kWarp == 0) {
      shared[threadIdx.x / kWarp] = of_warp;
    }
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const uint64_t best = most_of_warp(lane < kWarps ? shared[lane] : 0);
    if (threadIdx.x == 0) {
      a.values[r * a.values_stride + i] = logit_of(best) - most - log_sum;
      a.ids[r * a.ids_stride + i] = id_of(best);
    }
    if (mine == best) {
      mine = best_behind(row, logit_of(best), id_of(best));
    }
  }
}

}  // namespace

void op::TopLogProbabilities::run(CudaBackend& gpu) const {
  const int64_t k = ids.cols;
  require(k >= 1 && k <= logits.cols, "the best {} of {} pieces", k, logits.cols);
  require(logits.dtype == DType::bf16 && values.dtype == DType::f32 && ids.dtype == DType::i32,
          "top_log_probabilities on a GPU takes bf16 logits, not {}", name_of(logits.dtype));
  if (logits.rows == 0) {
    return;
  }
  const Arguments<Bf16> arguments{data<float>(values), data<int32_t>(ids), data<const Bf16>(logits),
                                  values.stride,       ids.stride,         logits.stride,
                                  logits.cols,         static_cast<int>(k)};
  with_row_type<Bf16>(logits, [&]<class Row>() {
    launch("top_log_probabilities", top_log_probabilities_kernel<Row>, {logits.rows, Row::kThreads, 0, gpu.queue()},
           arguments);
  });
}

}  // namespace tandem::backend
