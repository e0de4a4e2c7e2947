// Which block of attention has which sentence.
//
// The queries of each sentence are cut into tiles of kTile rows; a slot is one of them, and a block computes one head
// of it. Slots are given out by a kernel of its own, the longest sentences first: theirs are the blocks that take long,
// and where one of them begins last, all wait for it. Empty slots come last. How many slots there are is known without
// the starts, for a recorded step: q.rows / kTile + sentences + 1 are always enough.
#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem::backend::cuda {

constexpr int kForwardTile = 32, kBackwardTile = 64;  // queries of a block

// A tile of a sentence's queries. The rows past the last sentence are a sentence that does not attend.
struct alignas(16) Slot {
  int tile;                  // the slot is empty where the sentence has no such tile
  int attends;               // there are queries and keys, and they belong to a sentence
  int first_query, queries;  // rows of the sentence
  int first_key, keys;
  int unused[2];
};

struct AttentionArguments {
  const Slot* slots;  // for the kernel's tiles
  int slot_count;
  int heads, width;
  bool causal;
  float scale;       // 1 / sqrt(width)
  float scale_log2;  // scale * log2(e): 2^(scale_log2 * score) = e^(scale * score)
  DropoutArguments dropout;
};

// A plan holds the slots of the forward's tiles and then those of the backward's.
inline int64_t slots_of(int tile, const ConstView& query_starts, int64_t query_rows) {
  return query_rows / tile + query_starts.cols;
}

// With a plan of its own if the shape has none. tile: the kernel's.
AttentionArguments attention_arguments(CudaBackend& gpu, const AttentionShape& shape, int tile, const ConstView& q,
                                       const ConstView& k);

// (heads, slots), the latter in two dimensions.
inline dim3 attention_blocks(const AttentionArguments& a) {
  const int64_t down = std::min<int64_t>(a.slot_count, 1 << 15);
  return {static_cast<unsigned>(a.heads), static_cast<unsigned>(down),
          static_cast<unsigned>(divide_up(a.slot_count, down))};
}

__device__ inline int head_of_block() { return static_cast<int>(blockIdx.x); }

// Of a block of that grid, in all of its threads, before await_previous: the plan comes into the L2 cache a wave of
// blocks ahead of its use. It is as old as the pass and may have left the cache.
__device__ inline void fetch_slots_ahead(const AttentionArguments& a) {
  constexpr int kAhead = 160;
  const auto slot = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  if (head_of_block() == 0 && threadIdx.x < 2) {
    const int ahead = min(slot + static_cast<int>(threadIdx.x) * kAhead, a.slot_count - 1);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.slots + ahead));
  }
}

__device__ inline Slot slot_of_block(const AttentionArguments& a) {
  const auto slot = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  const auto* from = reinterpret_cast<const int4*>(a.slots + min(slot, a.slot_count - 1));
  const int4 x = from[0], y = from[1];
  return {slot < a.slot_count ? x.x : INT32_MAX / 128, x.y, x.z, x.w, y.x, y.y, {}};
}

}  // namespace tandem::backend::cuda
