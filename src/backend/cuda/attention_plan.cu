#include "backend/cuda/attention.cuh"
#include "backend/cuda/cuda_backend.h"

namespace tandem::backend {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kThreads = 1024;
constexpr int kClasses = kWarp, kClassRows = 16;  // classes of length: up to 16 rows, 32, ... 480, more

struct PlanArguments {
  Slot* slots[2];  // those of the forward's and the backward's tiles
  int slot_count[2];
  const int32_t* query_starts;  // [sentences + 1], the first is 0
  const int32_t* key_starts;
  int sentences, query_rows, key_rows;
};

// Block 0 assigns the forward's slots, block 1 the backward's. The order within a class is arbitrary; no result depends
// on it, since no two blocks of attention work on the same numbers.
__global__ void __launch_bounds__(kThreads) attention_plan_kernel(const PlanArguments a) {
  await_previous();
  __shared__ int next[kClasses];  // next free slot of each class, the longest first; before: its slots
  __shared__ int total;
  const int rows = blockIdx.x == 0 ? kForwardTile : kBackwardTile;
  Slot* slots = a.slots[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x);
  // Calls give(sentence, its first slot, its class, tiles) for this thread's sentences.
  const auto for_sentences = [&](const auto& give) {
    for (int i = thread; i <= a.sentences; i += kThreads) {
      const bool past = i == a.sentences;
      const int first_query = a.query_starts[i], first_key = a.key_starts[i];
      const int queries = (past ? a.query_rows : a.query_starts[i + 1]) - first_query;
      const int keys = (past ? a.key_rows : a.key_starts[i + 1]) - first_key;
      if (queries > 0 || keys > 0) {
        const int length = past ? 0 : (max(queries, keys) + kClassRows - 1) / kClassRows;
        const int attends = !past && queries > 0 && keys > 0 ? 1 : 0;
        give(Slot{0, attends, first_query, queries, first_key, keys, {}}, kClasses - 1 - min(length, kClasses - 1),
             max(1, (queries + rows - 1) / rows));
      }
    }
  };
  if (thread < kClasses) {
    next[thread] = 0;
  }
  __syncthreads();
  for_sentences([&](const Slot&, int of_class, int tiles) { atomicAdd(&next[of_class], tiles); });
  __syncthreads();
  if (thread < kClasses) {
    const int own = next[thread];
    int end = own;
    for (int step = 1; step < kClasses; step *= 2) {
      const int before = __shfl_up_sync(0xFFFFFFFF, end, step);
      end += thread >= step ? before : 0;
    }
    next[thread] = end - own;
    if (thread == kClasses - 1) {
      total = end;
    }
  }
  __syncthreads();
  for_sentences([&](Slot slot, int of_class, int tiles) {
    const int first = atomicAdd(&next[of_class], tiles);
    for (; slot.tile < tiles; ++slot.tile) {
      slots[first + slot.tile] = slot;
    }
  });
  for (int i = total + thread; i < a.slot_count[blockIdx.x]; i += kThreads) {
    slots[i] = {1, 0, 0, 0, 0, 0, {}};
  }
}

}  // namespace

int64_t CudaBackend::attention_plan_size(const AttentionShape& shape, int64_t query_rows) const {
  return (slots_of(kForwardTile, shape.query_starts, query_rows) +
          slots_of(kBackwardTile, shape.query_starts, query_rows)) *
         static_cast<int64_t>(sizeof(Slot) / sizeof(int32_t));
}

void op::PlanAttention::run(CudaBackend& gpu) const {
  PlanArguments a{.slots = {reinterpret_cast<Slot*>(data<int32_t>(plan)), nullptr},
                  .slot_count = {static_cast<int>(slots_of(kForwardTile, query_starts, query_rows)),
                                 static_cast<int>(slots_of(kBackwardTile, query_starts, query_rows))},
                  .query_starts = data<int32_t>(query_starts),
                  .key_starts = data<int32_t>(key_starts),
                  .sentences = static_cast<int>(query_starts.cols - 1),
                  .query_rows = static_cast<int>(query_rows),
                  .key_rows = static_cast<int>(key_rows)};
  a.slots[1] = a.slots[0] + a.slot_count[0];
  launch("attention_plan", attention_plan_kernel, {2, kThreads, 0, gpu.queue()}, a);
}

AttentionArguments cuda::attention_arguments(CudaBackend& gpu, const AttentionShape& shape, int tile,
                                             const ConstView& q, const ConstView& k) {
  const int width = head_width(q, shape.heads);
  const int64_t size = gpu.attention_plan_size(shape, q.rows);
  ConstView plan = shape.plan;
  if (plan.empty()) {
    const View own = make_view(gpu.scratch<int32_t>(size), DType::i32, 1, size, Memory::device);
    op::PlanAttention{.plan = own,
                      .query_starts = shape.query_starts,
                      .key_starts = shape.key_starts,
                      .query_rows = q.rows,
                      .key_rows = k.rows}
        .run(gpu);
    plan = own;
  }
  require(plan.size() == size, "the attention plan has {} numbers, but needs {}", plan.size(), size);
  const auto* slots = reinterpret_cast<const Slot*>(data<int32_t>(plan));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  return {.slots = slots + (tile == kForwardTile ? 0 : slots_of(kForwardTile, shape.query_starts, q.rows)),
          .slot_count = static_cast<int>(slots_of(tile, shape.query_starts, q.rows)),
          .heads = shape.heads,
          .width = width,
          .causal = shape.causal,
          .scale = scale,
          .scale_log2 = scale * 1.4426950408889634F,
          .dropout = DropoutArguments(shape.dropout)};
}

}  // namespace tandem::backend
