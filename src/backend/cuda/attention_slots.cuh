// Which block of attention has which sentence.
//
// The queries of each sentence are cut into tiles of kTile rows, and blocks are given out by slots: sentence i has the
// slots from starts[i] / kTile + i on, which are always enough and at least one. So the number of slots is known
// without the starts, and few of them are empty. The rows past the last sentence are sentence number `sentences`. A
// kernel of its own writes down whose each slot is: a block that looked for its sentence would spend a quarter of its
// time on it.
#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem::cuda {

// A tile of a sentence's queries.
struct Sentence {
  int tile;                  // the slot is empty where the sentence has no such tile
  int first_query, queries;  // rows of the sentence
  int first_key, keys;
  bool attends;  // there are queries and keys, and they belong to a sentence
};

struct AttentionArguments {
  const int32_t* query_starts;  // [sentences + 1], the first is 0
  const int32_t* key_starts;
  int sentences, heads, width;
  int query_rows, key_rows;
  int slots;  // for the kernel's tiles
  bool causal;
  float scale;       // 1 / sqrt(width)
  float scale_log2;  // scale * log2(e): 2^(scale_log2 * score) = e^(scale * score)
  DropoutArguments dropout;
};

template <int kTile>
AttentionArguments attention_arguments(const AttentionShape& shape, const View& q, const View& k) {
  const int64_t width = q.cols / shape.heads;
  require(width >= 1 && width <= 128, "attention on a GPU takes heads of 1 to 128 columns, not of {}", width);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  return {.query_starts = data<int32_t>(shape.query_starts),
          .key_starts = data<int32_t>(shape.key_starts),
          .sentences = static_cast<int>(shape.query_starts.cols - 1),
          .heads = shape.heads,
          .width = static_cast<int>(width),
          .query_rows = static_cast<int>(q.rows),
          .key_rows = static_cast<int>(k.rows),
          .slots = static_cast<int>(q.rows / kTile + shape.query_starts.cols),
          .causal = shape.causal,
          .scale = scale,
          .scale_log2 = scale * 1.4426950408889634F,
          .dropout = DropoutArguments(shape.dropout)};
}

template <int kTile>
__device__ int tiles_before(int start) {
  return static_cast<int>(static_cast<unsigned>(start) / kTile);
}

constexpr int kFindThreads = 256, kFindersOfSentence = 8;

template <int kTile>
__global__ void __launch_bounds__(kFindThreads) find_sentences_kernel(int4* slots, const AttentionArguments a) {
  await_previous();
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int i = thread / kFindersOfSentence;
  if (i > a.sentences) {
    return;
  }
  const bool past = i == a.sentences;
  const int first_query = a.query_starts[i], end_query = past ? a.query_rows : a.query_starts[i + 1];
  const int first_key = a.key_starts[i], end_key = past ? a.key_rows : a.key_starts[i + 1];
  const int first = tiles_before<kTile>(first_query) + i, end = tiles_before<kTile>(end_query) + i + 1;
  for (int slot = first + thread % kFindersOfSentence; slot < end; slot += kFindersOfSentence) {
    slots[2 * slot] = {slot - first, past ? 0 : 1, first_query, end_query - first_query};
    slots[2 * slot + 1] = {first_key, end_key - first_key, 0, 0};
  }
}

// Writes the slots, two vectors each, and returns the grid of the kernel that reads them: (heads, slots), the latter in
// two dimensions.
template <int kTile>
dim3 find_sentences(int4* slots, const AttentionArguments& a, cudaStream_t stream) {
  const auto finders = static_cast<unsigned>(divide_up((a.sentences + 1) * int64_t{kFindersOfSentence}, kFindThreads));
  launch("find_sentences_kernel", find_sentences_kernel<kTile>, {finders, kFindThreads, 0, stream}, slots, a);
  const int64_t down = std::min<int64_t>(a.slots, 1 << 15);
  return {static_cast<unsigned>(a.heads), static_cast<unsigned>(down), static_cast<unsigned>(divide_up(a.slots, down))};
}

__device__ inline int head_of_block() { return static_cast<int>(blockIdx.x); }

// Of a block of that grid. Its tile is past the sentence's queries where there is nothing to do.
__device__ inline Sentence sentence_of_block(const int4* slots, const AttentionArguments& a) {
  const auto slot = static_cast<int>(blockIdx.y + blockIdx.z * gridDim.y);
  const int own = min(slot, a.slots - 1);
  const int4 x = slots[2 * own], y = slots[2 * own + 1];
  Sentence s;
  s.tile = slot < a.slots ? x.x : INT32_MAX / 128;
  s.first_query = x.z;
  s.queries = x.w;
  s.first_key = y.x;
  s.keys = y.y;
  s.attends = x.y != 0 && s.queries > 0 && s.keys > 0;
  return s;
}

}  // namespace tandem::cuda
