// A row of activations held in the registers of a few warps of one block.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem::backend::cuda {

__device__ inline float add(float a, float b) { return a + b; }
__device__ inline float2 add(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ inline float2 sum_of_warp(float2 values) { return {sum_of_warp(values.x), sum_of_warp(values.y)}; }

// kThreads threads of a block of kBlock hold one row, kVectorCount times eight columns each: thread t has the columns
// [8 g, 8 g + 8) for its groups g = t, t + kThreads, ... kVector: vectors are whole and aligned.
template <class H, int kThreadCount, int kVectorCount, bool kVector, int kBlockThreads>
struct NormRow {
  using Type = H;
  static constexpr int kBlock = kBlockThreads;
  static constexpr int kThreads = kThreadCount;
  static constexpr int kVectors = kVectorCount;
  static constexpr bool kWhole = kVector;
  static constexpr int kRowsPerBlock = kBlock / kThreads;

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kThreads; }
  __device__ static int place() { return static_cast<int>(threadIdx.x) / kThreads; }  // index of the row in the block
  __device__ static uint32_t first_row() { return blockIdx.x * kRowsPerBlock + static_cast<uint32_t>(place()); }
  __device__ static uint32_t group(int vector) { return static_cast<uint32_t>(thread() + vector * kThreads); }
  __device__ static int column(int vector) { return 8 * (thread() + vector * kThreads); }
  __device__ static bool has(int vector, int i, int cols) { return column(vector) + (kVector ? 0 : i) < cols; }

  // Absent columns read as 0.
  __device__ static void load(Half8<H> (&to)[kVectors], const H* row, int cols) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kVector) {
        to[v] = has(v, 0, cols) ? load_vector<H>(row + column(v)) : Half8<H>{};
      } else {
        to[v] = load_packed<false>(row, column(v), cols);
      }
    }
  }

  __device__ static void store(H* row, int cols, const Half8<H> (&from)[kVectors]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (!kVector) {
        float values[8];
        from[v].unpack(values);
        store8<false>(row, column(v), cols, values);
      } else if (has(v, 0, cols)) {
        store_vector(row + column(v), from[v]);
      }
    }
  }

  // Eight of the columns' f32 parameters; absent ones are 0.
  __device__ static void load_parameters(float (&to)[8], const float* parameters, int vector, int cols) {
    if constexpr (kVector) {
      const float4* from = reinterpret_cast<const float4*>(parameters + column(vector));
      const bool there = has(vector, 0, cols);
      const float4 low = there ? from[0] : float4{}, high = there ? from[1] : float4{};
      to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
      to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        to[i] = has(vector, i, cols) ? parameters[column(vector) + i] : 0.0F;
      }
    }
  }

  // Stores four f32 columns of a row, half a vector, numbered f = 2 * vector + half.
  __device__ static void store_four(float* row, int f, int cols, float4 four) {
    float* to = row + column(f / 2) + f % 2 * 4;
    if constexpr (kVector) {
      if (has(f / 2, 0, cols)) {
        *reinterpret_cast<float4*>(to) = four;
      }
    } else {
      const float all[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (has(f / 2, f % 2 * 4 + i, cols)) {
          to[i] = all[i];
        }
      }
    }
  }

  // Calls body(vector, i) for the columns that are there.
  template <class Body>
  __device__ static void each(int cols, const Body& body) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (has(v, i, cols)) {
          body(v, i);
        }
      }
    }
  }

  // A barrier among the row's threads. Its number is a constant: if a register held it, a block would reserve all 16.
  template <int kPlace = 0>
  __device__ static void wait_for_row() {
    if constexpr (kPlace < kRowsPerBlock) {
      if (place() == kPlace) {
        asm volatile("bar.sync %0, %1;" ::"n"(1 + kPlace), "n"(kThreads) : "memory");
      } else {
        wait_for_row<kPlace + 1>();
      }
    }
  }

  // The sum over the row, in each of its threads, in a fixed order. T: float or float2. `shared` has an element for
  // each warp of the block; none of the row's threads may still be reading it.
  template <class T>
  __device__ static T sum(T value, T* shared) {
    value = sum_of_warp(value);
    if constexpr (kThreads > kWarp) {
      const int first = place() * (kThreads / kWarp);
      if (thread() % kWarp == 0) {
        shared[first + thread() / kWarp] = value;
      }
      wait_for_row();
      value = shared[first];
#pragma unroll
      for (int i = 1; i < kThreads / kWarp; ++i) {
        value = add(value, shared[first + i]);
      }
    }
    return value;
  }
};

// Calls body.operator()<Row>() with the type that fits rows of this width, in blocks of at least kBlock threads.
template <class H, int kBlock, class Body>
void with_norm_row(int64_t cols, bool vectors, const Body& body) {
  require(cols <= kWidestNorm, "a norm over {} columns; on a GPU it has at most {}", cols, kWidestNorm);
  const auto choose = [&]<bool kVector>() {
    if (cols <= 256) {
      body.template operator()<NormRow<H, 32, 1, kVector, kBlock>>();
    } else if (cols <= 512) {
      body.template operator()<NormRow<H, 32, 2, kVector, kBlock>>();
    } else if (cols <= 1024) {
      body.template operator()<NormRow<H, 64, 2, kVector, kBlock>>();
    } else if (cols <= 2048) {
      body.template operator()<NormRow<H, 128, 2, kVector, kBlock>>();
    } else {
      body.template operator()<NormRow<H, 256, 4, kVector, 256>>();
    }
  };
  if (vectors) {
    choose.template operator()<true>();
  } else {
    choose.template operator()<false>();
  }
}

// Norm kernels index the elements of a matrix with 32 bits.
inline uint32_t stride_of(const ConstView& view) {
  require(view.rows * view.stride <= int64_t{UINT32_MAX},
          "a norm over {} rows, {} elements apart; on a GPU their product is less than 2^32", view.rows, view.stride);
  return static_cast<uint32_t>(view.stride);
}

}  // namespace tandem::backend::cuda
