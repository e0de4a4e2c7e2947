// A row of logits over the vocabulary, spread over the threads of a block.
#pragma once

#include <cuda_pipeline.h>

#include <cmath>

#include "backend/backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend::cuda {

// A row that is read once and stays in registers: kVectors times eight logits per thread. kBlocks: blocks per
// multiprocessor, so that some load while others compute.
template <class H, int kBlockThreads, int kVectors, int kBlockCount>
class HeldRow {
 public:
  using Type = H;
  static constexpr int kThreads = kBlockThreads, kBlocks = kBlockCount;
  static constexpr int64_t kMostCols = int64_t{8} * kThreads * kVectors;
  // Dynamic shared memory for the row that is being fetched; 0 if not every GPU has so much for its blocks.
  static constexpr int kRoom = 2 * kMostCols <= 65536 ? static_cast<int>(2 * kMostCols) : 0;

  __device__ HeldRow(const H* row, int64_t cols) : cols_(static_cast<int>(cols)) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < cols_) {
        values_[v] = load_vector<H>(row + column(v));
      }
    }
  }

  // Begins to copy a row into shared memory. A thread reads back only what it has copied itself, so no barrier is
  // needed; it must have used all that it took before.
  __device__ static void fetch(const H* row, int64_t cols) {
    if constexpr (kRoom > 0) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (column(v) < static_cast<int>(cols)) {
          __pipeline_memcpy_async(place(v), row + column(v), 16);
        }
      }
      __pipeline_commit();
    }
  }

  // Returns the row, which must be the one fetched last.
  __device__ static HeldRow take(const H* row, int64_t cols) {
    if constexpr (kRoom > 0) {
      __pipeline_wait_prior(0);
      HeldRow held(static_cast<int>(cols));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (column(v) < held.cols_) {
          held.values_[v] = load_vector<H>(place(v));
        }
      }
      return held;
    } else {
      return HeldRow(row, cols);
    }
  }

  // The largest of the thread's logits; NaN is ignored.
  __device__ float largest() const {
    typename Half<H>::Pair most = Half<H>::twice(-INFINITY);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < cols_) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          most = __hmax2(most, values_[v].pair[i]);
        }
      }
    }
    return fmaxf(__low2float(most), __high2float(most));
  }

  // Calls body(logit, column) for each of the thread's logits, columns rising.
  template <class Body>
  __device__ void each(const Body& body) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < cols_) {
        float logits[8];
        values_[v].unpack(logits);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          body(logits[i], column(v) + i);
        }
      }
    }
  }

  // Called at the head of a loop with each(): else the compiler unpacks the row before it, into twice the registers.
  __device__ void stay_packed() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      uint4& bits = reinterpret_cast<uint4&>(values_[v]);
      asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    }
  }

  // row[column] = function(logit) for each of the thread's logits.
  template <class Function>
  __device__ void write(H* row, const Function& function) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < cols_) {
        float results[8];
        values_[v].unpack(results);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          results[i] = function(results[i]);
        }
        store_vector(row + column(v), Half8<H>::pack(results));
      }
    }
  }

  __device__ static void clear(H* row, int64_t cols) {
    for (int64_t col = int64_t{8} * threadIdx.x; col < cols; col += 8 * kThreads) {
      *reinterpret_cast<uint4*>(row + col) = uint4{};
    }
  }

  // Whether the column is one of the calling thread's.
  __device__ static bool owns(int column) { return column / 8 % kThreads == static_cast<int>(threadIdx.x); }

 private:
  __device__ explicit HeldRow(int cols) : cols_(cols) {}
  __device__ static uint4* place(int vector) {
    extern __shared__ uint4 room[];
    return room + vector * kThreads + threadIdx.x;
  }
  __device__ static int column(int vector) { return 8 * (static_cast<int>(threadIdx.x) + vector * kThreads); }

  int cols_;
  Half8<H> values_[kVectors];
};

// A row of any width and address, read again for each pass; the same interface.
template <class H>
class StreamedRow {
 public:
  using Type = H;
  static constexpr int kThreads = 512, kBlocks = 3, kRoom = 0;

  __device__ static void fetch(const H* /*row*/, int64_t /*cols*/) {}
  __device__ static StreamedRow take(const H* row, int64_t cols) { return {row, cols}; }

  __device__ StreamedRow(const H* row, int64_t cols) : row_(row), cols_(static_cast<int>(cols)) {}

  __device__ float largest() const {
    float most = -INFINITY;
    each([&](float logit, int) { most = fmaxf(most, logit); });
    return most;
  }
  template <class Body>
  __device__ void each(const Body& body) const {
    for (int col = static_cast<int>(threadIdx.x); col < cols_; col += kThreads) {
      body(to_float(row_[col]), col);
    }
  }
  __device__ void stay_packed() {}
  template <class Function>
  __device__ void write(H* row, const Function& function) const {
    each([&](float logit, int col) { row[col] = from_float<H>(function(logit)); });
  }
  __device__ static void clear(H* row, int64_t cols) {
    for (int64_t col = threadIdx.x; col < cols; col += kThreads) {
      row[col] = from_float<H>(0.0F);
    }
  }
  __device__ static bool owns(int column) { return column % kThreads == static_cast<int>(threadIdx.x); }

 private:
  const H* row_;
  int cols_;
};

// Calls body.operator()<Row>() with the type that fits these logits.
template <class H, class Body>
void with_row_type(const ConstView& logits, const Body& body) {
  const bool vectors = vectors_of_8(logits);
  const auto holds = [&]<class Row>(std::type_identity<Row>) {
    const bool fits = vectors && logits.cols <= Row::kMostCols;
    if (fits) {
      body.template operator()<Row>();
    }
    return fits;
  };
  const auto first_of = [&](auto... rows) { return (holds(rows) || ...); };
  if (!first_of(std::type_identity<HeldRow<H, 512, 1, 3>>(), std::type_identity<HeldRow<H, 512, 2, 3>>(),
                std::type_identity<HeldRow<H, 512, 4, 2>>(), std::type_identity<HeldRow<H, 512, 8, 2>>(),
                std::type_identity<HeldRow<H, 1024, 8, 1>>())) {
    body.template operator()<StreamedRow<H>>();
  }
}

constexpr float kLog2E = 1.4426950409F, kLn2 = 0.6931471806F;

// e^(logit - most) for shift = most * kLog2E, which is rounded in the same way for all logits of a row. Relative error
// about 1e-7 times the larger of 1 and their magnitude; 0 if the result is below the smallest normal number.
__device__ inline float shifted_exp(float logit, float shift) { return exp2_fast(fmaf(logit, kLog2E, -shift)); }

__device__ inline void add_to(LossTotals& sum, LossTotals part) {
  sum.smoothed += part.smoothed;
  sum.nll += part.nll;
  sum.correct += part.correct;
  sum.tokens += part.tokens;
}
__device__ inline LossTotals sum_of_warp(const LossTotals& t) {
  return {sum_of_warp(t.smoothed), sum_of_warp(t.nll), sum_of_warp(t.correct), sum_of_warp(t.tokens)};
}

// The maximum (or sums) over a block of kThreads, in every thread and in a fixed order. `shared` holds 32 values that
// no thread of the block may still be reading from an earlier call.
template <int kThreads>
__device__ float most_of_block(float value, float* shared) {
  value = most_of_warp(value);
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return most_of_warp(lane < kThreads / kWarp ? shared[lane] : -INFINITY);
}

template <int kThreads>
__device__ float3 sums_of_block(float3 values, float3* shared) {
  values = {sum_of_warp(values.x), sum_of_warp(values.y), sum_of_warp(values.z)};
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = values;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  values = lane < kThreads / kWarp ? shared[lane] : float3{0, 0, 0};
  return {sum_of_warp(values.x), sum_of_warp(values.y), sum_of_warp(values.z)};
}

}  // namespace tandem::backend::cuda
