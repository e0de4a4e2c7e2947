#include <cuda_pipeline.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/norm_row.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class H>
struct Arguments {
  H* dresidual;  // may be dsum or dnormed
  H* dbranch;    // may be null
  const H* dnormed;
  const H* dsum;  // may be null
  const H* sum;
  const float *statistics, *gamma;
  uint32_t dresidual_stride, dbranch_stride, dnormed_stride, dsum_stride, sum_stride, statistics_stride;
  uint32_t rows;
  int cols;
  float share;  // 1 / cols
  bool bias;    // the sums of dbranch are wanted
  DropoutArguments dropout;
};

// The columns of kCount threads, four at a time: thread i has four[...][i].
template <class Row, int kCount>
struct Fours {
  static constexpr int kFours = 2 * Row::kVectors;  // fours per thread
  float4 four[kFours][kCount];

  __device__ void set(int i, const float (&values)[Row::kVectors][8]) {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float* from = values[f / 2] + f % 2 * 4;
      four[f][i] = {from[0], from[1], from[2], from[3]};
    }
  }
  __device__ void add(int i, const float (&more)[Row::kVectors][8]) {
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float* from = more[f / 2] + f % 2 * 4;
      const float4 sum = four[f][i];
      four[f][i] = {sum.x + from[0], sum.y + from[1], sum.z + from[2], sum.w + from[3]};
    }
  }
  __device__ void get(float (&values)[8], int i, int vector) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 from = four[2 * vector + half][i];
      values[4 * half] = from.x, values[4 * half + 1] = from.y;
      values[4 * half + 2] = from.z, values[4 * half + 3] = from.w;
    }
  }
};

template <class Row>
using ColumnSums = Fours<Row, Row::kBlock>;  // the running sums of each of the block's threads

// Called after a barrier: writes the sums over the block's rows of the two vectors, and of the third if wanted, to
// to[0], to[1] and to[2], each [cols]. Each row of threads takes some of the columns.
template <class Row>
__device__ void write_sums(float* to, const ColumnSums<Row> (&two)[2], const ColumnSums<Row>& third, bool wanted,
                           int cols) {
  constexpr int kFours = ColumnSums<Row>::kFours;
  for (int i = Row::place(); i < (wanted ? 3 : 2) * kFours; i += Row::kRowsPerBlock) {
    const int f = i % kFours;
    const float4* from = (i < 2 * kFours ? two[i / kFours] : third).four[f] + Row::thread();
    float4 sum = from[0];
#pragma unroll
    for (int place = 1; place < Row::kRowsPerBlock; ++place) {
      const float4 more = from[place * Row::kThreads];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    Row::store_four(to + int64_t{i / kFours} * cols, f, cols, sum);
  }
}

// Blocks that a multiprocessor holds at one time.
template <class Row>
constexpr int kResident = Row::kWhole&& Row::kVectors <= 2 ? 2 : 1;

// A block's shared memory. While there are rows, a thread reads of them and of their sums only what it wrote itself.
template <class Row>
struct BlockMemory {
  static constexpr bool kAhead = Row::kWhole && Row::kVectors <= 2;
  static constexpr int kSlots = kAhead ? 2 : 1;       // none is used without kAhead
  using Slot = uint4[3][Row::kVectors][Row::kBlock];  // the data read of a row: dnormed, sum, dsum
  union {
    Slot slots[kSlots];              // used while there are rows
    ColumnSums<Row> dparameters[2];  // used afterwards: gamma's and beta's
  };
  ColumnSums<Row> dbranch;  // here because registers are few
  // False for the widest rows, for which a block would need more memory than some GPUs have (99 KB).
  static constexpr bool kGammaHere = Row::kVectors <= 2;
  Fours<Row, kGammaHere ? Row::kThreads : 1> gamma;
  // Used in turn: a row's threads rewrite one only after the barrier of the other.
  float2 shared[2][Row::kBlock / kWarp];
};

// A thread's input of a row. Whole vectors of the next two rows are copied into shared memory while this one is
// worked on; a thread reads back only what it has copied itself, so no barrier is needed.
template <class Row>
struct Inputs {
  static constexpr bool kAhead = BlockMemory<Row>::kAhead;
  using Slot = typename BlockMemory<Row>::Slot;

  Half8<typename Row::Type> dnormed[Row::kVectors], sum[Row::kVectors], dsum[Row::kVectors] = {};

  // Called by every thread in every turn, even if there is no such row.
  __device__ static void fetch(Slot& slot, const Arguments<typename Row::Type>& a, uint32_t row) {
    if constexpr (kAhead) {
      if (row < a.rows) {
        copy(slot[0], a.dnormed + row * a.dnormed_stride, a.cols);
        copy(slot[1], a.sum + row * a.sum_stride, a.cols);
        if (a.dsum != nullptr) {
          copy(slot[2], a.dsum + row * a.dsum_stride, a.cols);
        }
      }
      __pipeline_commit();
    }
  }

  // Reads the row that was fetched last but one, into this slot.
  __device__ Inputs(const Slot& slot, const Arguments<typename Row::Type>& a, uint32_t row) {
    if constexpr (kAhead) {
      __pipeline_wait_prior(1);
      read(dnormed, slot[0], a.cols);
      read(sum, slot[1], a.cols);
      if (a.dsum != nullptr) {
        read(dsum, slot[2], a.cols);
      }
    } else {
      Row::load(dnormed, a.dnormed + row * a.dnormed_stride, a.cols);
      Row::load(sum, a.sum + row * a.sum_stride, a.cols);
      if (a.dsum != nullptr) {
        Row::load(dsum, a.dsum + row * a.dsum_stride, a.cols);
      }
    }
  }

 private:
  __device__ static void copy(uint4 (&to)[Row::kVectors][Row::kBlock], const typename Row::Type* row, int cols) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      if (Row::has(v, 0, cols)) {
        __pipeline_memcpy_async(&to[v][threadIdx.x], row + Row::column(v), 16);
      }
    }
  }
  __device__ static void read(Half8<typename Row::Type> (&to)[Row::kVectors],
                              const uint4 (&from)[Row::kVectors][Row::kBlock], int cols) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      to[v] =
          Row::has(v, 0, cols) ? load_vector<typename Row::Type>(&from[v][threadIdx.x]) : Half8<typename Row::Type>{};
    }
  }
};

// Mean and rstd; 0 if there is no such row.
template <class H>
__device__ float2 load_statistics(const Arguments<H>& a, uint32_t row) {
  const float* statistics = a.statistics + row * a.statistics_stride;
  return row < a.rows ? float2{statistics[0], statistics[1]} : float2{0, 0};
}

// dresidual = d, dbranch = d * mask.
template <class Row>
__device__ void write(const Arguments<typename Row::Type>& a, uint32_t row, const DropoutMask& mask,
                      const Philox (&words)[Row::kVectors], float (&d)[Row::kVectors][8], ColumnSums<Row>& sums) {
  Half8<typename Row::Type> packed[Row::kVectors];
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    packed[v] = Half8<typename Row::Type>::pack(d[v]);
  }
  Row::store(a.dresidual + row * a.dresidual_stride, a.cols, packed);
  if (a.dbranch == nullptr) {
    return;
  }
  if (mask.on()) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      mask.apply(d[v], words[v]);
      packed[v] = Half8<typename Row::Type>::pack(d[v]);
    }
  }
  Row::store(a.dbranch + row * a.dbranch_stride, a.cols, packed);
  if (a.bias) {
    sums.add(threadIdx.x, d);
  }
}

// Computes x = (sum - mean) * rstd and g = dnormed * gamma of a row. Adds its shares of dgamma and dbeta, and returns
// the thread's sums of g and g x.
template <class Row>
__device__ float2 normalise(float (&g)[Row::kVectors][8], float (&x)[Row::kVectors][8],
                            float (&dparameters)[2][Row::kVectors][8], const Inputs<Row>& in, float2 statistics,
                            const BlockMemory<Row>& memory, const Arguments<typename Row::Type>& a) {
  float2 sums{0, 0};
#pragma unroll
  for (int v = 0; v < Row::kVectors; ++v) {
    float gamma[8];
    if constexpr (BlockMemory<Row>::kGammaHere) {
      memory.gamma.get(gamma, Row::thread(), v);
    } else {
      Row::load_parameters(gamma, a.gamma, v, a.cols);
    }
    in.dnormed[v].unpack(g[v]);
    in.sum[v].unpack(x[v]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[v][i] = (x[v][i] - statistics.x) * statistics.y;
      dparameters[0][v][i] += g[v][i] * x[v][i];
      dparameters[1][v][i] += g[v][i];
      g[v][i] *= gamma[i];  // 0 if there is no column
      sums = add(sums, {g[v][i], g[v][i] * x[v][i]});
    }
  }
  return sums;
}

template <class Row>
__device__ void keep_gamma(BlockMemory<Row>& memory, const Arguments<typename Row::Type>& a) {
  if (BlockMemory<Row>::kGammaHere && Row::place() == 0) {
    float gamma[Row::kVectors][8];
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      Row::load_parameters(gamma[v], a.gamma, v, a.cols);
    }
    memory.gamma.set(Row::thread(), gamma);
  }
}

// d = rstd * (g - mean(g) - x * mean(g x)) + dsum, row by row.
// The block's shares of dgamma, dbeta and the branch's bias, if wanted, go to parts[blockIdx.x], [2 or 3, cols].
template <class Row>
__global__ void __launch_bounds__(Row::kBlock, kResident<Row>)
    residual_norm_backward_kernel(float* parts, const __grid_constant__ Arguments<typename Row::Type> a) {
  await_previous();
  extern __shared__ uint4 bytes[];
  auto& memory = reinterpret_cast<BlockMemory<Row>&>(bytes);
  const uint32_t step = gridDim.x * Row::kRowsPerBlock;
  uint32_t row = Row::first_row();
  Inputs<Row>::fetch(memory.slots[0], a, row);
  const DropoutMask mask(a.dropout);
  float2 next = load_statistics(a, row);
  keep_gamma<Row>(memory, a);
  float dparameters[2][Row::kVectors][8] = {};  // dgamma, dbeta
  memory.dbranch.set(threadIdx.x, dparameters[0]);
  // The second rows are requested only after all the block's first ones, with which work can begin.
  __syncthreads();
  Inputs<Row>::fetch(memory.slots[BlockMemory<Row>::kSlots - 1], a, row + step);
  for (int turn = 0; row < a.rows; row += step, turn ^= 1) {
    const float2 statistics = next;
    next = load_statistics(a, row + step);
    Philox words[Row::kVectors];  // computed while the row loads
    if (mask.on()) {
#pragma unroll
      for (int v = 0; v < Row::kVectors; ++v) {
        words[v] = mask.lanes(row, Row::group(v));
      }
    }
    auto& slot = memory.slots[turn % BlockMemory<Row>::kSlots];
    const Inputs<Row> in(slot, a, row);
    float d[Row::kVectors][8], x[Row::kVectors][8];
    float2 means = normalise<Row>(d, x, dparameters, in, statistics, memory, a);
    Inputs<Row>::fetch(slot, a, row + 2 * step);
    means = Row::sum(means, memory.shared[turn]);
    means = {means.x * a.share, means.y * a.share};
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
      float more[8];
      in.dsum[v].unpack(more);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        d[v][i] = (d[v][i] - means.x - x[v][i] * means.y) * statistics.y + more[i];
      }
    }
    write<Row>(a, row, mask, words, d, memory.dbranch);
  }
  // In the last turn some of a block's threads may have no row: they wait as often as the others.
  const uint32_t first = blockIdx.x * Row::kRowsPerBlock;
  if (Row::kThreads > kWarp && a.rows > first && (a.rows - first - 1) % step < Row::first_row() - first) {
    Row::wait_for_row();
  }
  memory.dparameters[0].set(threadIdx.x, dparameters[0]);
  memory.dparameters[1].set(threadIdx.x, dparameters[1]);
  __syncthreads();
  write_sums(parts + int64_t{blockIdx.x} * (a.bias ? 3 : 2) * a.cols, memory.dparameters, memory.dbranch, a.bias,
             a.cols);
}

}  // namespace

void op::ResidualNormBackward::run(CudaBackend& gpu) const {
  require(dnormed.dtype == DType::bf16 && sum.dtype == DType::bf16 && gamma.dtype == DType::f32 &&
              dgamma.dtype == DType::f32 && statistics.dtype == DType::f32,
          "residual_norm_backward on a GPU takes bf16 rows and f32 parameters, not {} and {}", name_of(dnormed.dtype),
          name_of(gamma.dtype));
  const int cols = static_cast<int>(dnormed.cols);
  const bool bias = !dbias.empty();
  const Sums sums{{data<float>(dgamma), data<float>(dbeta), data<float>(dbias)}, bias ? 3 : 2, cols, accumulate};
  if (dnormed.size() == 0) {
    if (cols > 0 && !accumulate) {
      gpu.late_sums().add(sums, nullptr, 0);
    }
    return;
  }
  const Arguments<Bf16> arguments{data<Bf16>(dresidual),
                                  data<Bf16>(dbranch),
                                  data<const Bf16>(dnormed),
                                  data<const Bf16>(dsum),
                                  data<const Bf16>(sum),
                                  data<const float>(statistics),
                                  data<const float>(gamma),
                                  stride_of(dresidual),
                                  stride_of(dbranch),
                                  stride_of(dnormed),
                                  stride_of(dsum),
                                  stride_of(sum),
                                  stride_of(statistics),
                                  static_cast<uint32_t>(dnormed.rows),
                                  cols,
                                  1.0F / static_cast<float>(cols),
                                  bias,
                                  DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(dresidual) && vectors_of_8(dbranch) && vectors_of_8(dnormed) &&
                       vectors_of_8(dsum) && vectors_of_8(sum) && aligned_16(gamma);
  with_norm_row<Bf16, 256>(dnormed.cols, vectors, [&]<class Row>() {
    const int64_t wanted = divide_up(dnormed.rows, Row::kRowsPerBlock);
    const int blocks = static_cast<int>(std::min<int64_t>(wanted, int64_t{gpu.processors()} * kResident<Row>));
    float* parts = gpu.late_sums().room(int64_t{blocks} * sums.count * cols);
    const auto kernel = residual_norm_backward_kernel<Row>;
    constexpr int kBytes = sizeof(BlockMemory<Row>);
    static_assert(kBytes <= 99 * 1024);  // every GPU from compute capability 8.0 on gives this to a block
    launch("residual_norm_backward", kernel, {blocks, Row::kBlock, kBytes, gpu.queue()}, parts, arguments);
    gpu.late_sums().add(sums, parts, blocks);
  });
}

}  // namespace tandem::backend
