// Attention of one query per row over cached keys and values. A warp computes one head of one row: a group of lanes
// shares each key's columns, eight columns per lane, and the groups take the keys in turn, each with its own maximum
// and sum; at the end the groups are merged.
#include "backend/cuda/attention.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;  // NOLINT: device code of this file only

constexpr int kThreads = 128;

template <class H>
struct CachedArguments {
  H* out;
  const H *q, *keys, *values;
  int64_t out_stride, q_stride, keys_stride, values_stride;
  const int32_t *length, *first, *index;  // first and index may be null
  int64_t index_stride;
  int64_t rows;
  int heads, width;
  float scale_log2;  // log2(e) / sqrt(width)
};

// The running sums of a group of lanes; exponentials are 2^(score - most).
struct Running {
  float most = -INFINITY, total = 0;
  float sums[8] = {};

  // Makes exponentials relative to `more`, which is at least `most`. If both are -infinity there is nothing to scale.
  __device__ void raise(float more) {
    const float shrink = most == more ? 1.0F : exp2f(most - more);
    most = more;
    total *= shrink;
#pragma unroll
    for (float& sum : sums) {
      sum *= shrink;
    }
  }
};

// Eight columns of a head; zeros if the row is not present or has no such columns.
template <bool kVector, class H>
__device__ Half8<H> load(const H* row, int column, int width, bool present) {
  Half8<H> result = {};
  if (!kVector || (present && column < width)) {
    result = load_packed<kVector>(row, column, present ? width : 0);
  }
  return result;
}

// Adds kAtOnce keys of a group, those of begin, begin + kGroups, ... that are before `length`.
template <int kLanes, int kAtOnce, bool kVector, class H>
__device__ void attend(Running& running, const float (&query)[8], const CachedArguments<H>& a, int64_t row, int begin,
                       int length, int64_t head_column) {
  constexpr int kGroups = kWarp / kLanes;
  const int column = threadIdx.x % kLanes * 8;
  Half8<H> keys[kAtOnce], values[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int key = begin + i * kGroups;
    const bool present = key < length;
    int64_t at = 0;
    if (present) {
      at = a.index != nullptr ? a.index[row * a.index_stride + key] : (a.first != nullptr ? a.first[row] : 0) + key;
    }
    keys[i] = load<kVector>(a.keys + at * a.keys_stride + head_column, column, a.width, present);
    values[i] = load<kVector>(a.values + at * a.values_stride + head_column, column, a.width, present);
  }
  float scores[kAtOnce];
  float most = running.most;
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    float key[8], dot = 0;
    keys[i].unpack(key);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      dot = fmaf(query[j], key[j], dot);
    }
    dot = sum_of_warp<kLanes>(dot);
    scores[i] = begin + i * kGroups < length ? dot : -INFINITY;
    most = fmaxf(most, scores[i]);
  }
  running.raise(most);
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const float weight = begin + i * kGroups < length ? exp2f(scores[i] - most) : 0.0F;
    running.total += weight;
    float value[8];
    values[i].unpack(value);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      running.sums[j] = fmaf(weight, value[j], running.sums[j]);
    }
  }
}

template <class H, int kWidth, bool kVector>
__global__ void __launch_bounds__(kThreads) attention_cached_kernel(const CachedArguments<H> a) {
  await_previous();
  constexpr int kLanes = kWidth / 8;
  constexpr int kGroups = kWarp / kLanes;
  constexpr int kAtOnce = 4;
  const int64_t piece = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const int64_t row = piece / a.heads;
  if (row >= a.rows) {
    return;
  }
  const int64_t head_column = piece % a.heads * a.width;
  const int lane = threadIdx.x % kWarp;
  const int column = lane % kLanes * 8;
  const int length = a.length[row];
  float query[8];
  load<kVector>(a.q + row * a.q_stride + head_column, column, a.width, true).unpack(query);
#pragma unroll
  for (float& value : query) {
    value *= a.scale_log2;
  }
  Running running;
  for (int begin = 0; begin < length; begin += kAtOnce * kGroups) {
    attend<kLanes, kAtOnce, kVector>(running, query, a, row, begin + lane / kLanes, length, head_column);
  }
  float most = running.most;
#pragma unroll
  for (int distance = kLanes; distance < kWarp; distance *= 2) {
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, distance));
  }
  running.raise(most);
#pragma unroll
  for (int distance = kLanes; distance < kWarp; distance *= 2) {
    running.total += __shfl_xor_sync(0xFFFFFFFF, running.total, distance);
#pragma unroll
    for (float& sum : running.sums) {
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, distance);
    }
  }
  if (lane < kLanes && column < a.width) {
    const float factor = length > 0 ? 1.0F / running.total : 0.0F;
#pragma unroll
    for (float& sum : running.sums) {
      sum *= factor;
    }
    store8<kVector>(a.out + row * a.out_stride + head_column, column, a.width, running.sums);
  }
}

}  // namespace

void op::AttentionCached::run(CudaBackend& gpu) const {
  require(out.dtype == DType::bf16 && q.dtype == DType::bf16 && cache.keys.dtype == DType::bf16,
          "attention on a GPU computes in bf16");
  const int width = head_width(q, heads);
  if (q.size() == 0) {
    return;
  }
  const CachedArguments<Bf16> arguments{
      .out = data<Bf16>(out),
      .q = data<Bf16>(q),
      .keys = data<Bf16>(cache.keys),
      .values = data<Bf16>(cache.values),
      .out_stride = out.stride,
      .q_stride = q.stride,
      .keys_stride = cache.keys.stride,
      .values_stride = cache.values.stride,
      .length = data<int32_t>(cache.length),
      .first = data<int32_t>(cache.first),
      .index = data<int32_t>(cache.index),
      .index_stride = cache.index.stride,
      .rows = q.rows,
      .heads = heads,
      .width = width,
      .scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(width)))};
  const bool vectors =
      width % 8 == 0 && vectors_of_8(out) && vectors_of_8(q) && vectors_of_8(cache.keys) && vectors_of_8(cache.values);
  with_width(width, [&]<int kWidth>() {
    const auto kernel =
        vectors ? attention_cached_kernel<Bf16, kWidth, true> : attention_cached_kernel<Bf16, kWidth, false>;
    launch("attention_cached", kernel, {divide_up(q.rows * heads * kWarp, kThreads), kThreads, 0, gpu.queue()},
           arguments);
  });
}

}  // namespace tandem::backend
