// A warp adds up 256 columns of one id's rows. If an id has many rows (a comma has thousands), the list of rows is cut
// at every kPiece places, a warp adds up one piece, and a second kernel adds the pieces of an id in order; so no id is
// the last to finish, and the order of additions is always the same.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/dropout.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kColumns = 8 * kWarp;  // columns per warp
constexpr int kPiece = kPieceRows;   // rows of an id that one warp adds up

template <class H>
struct Arguments {
  float* dtable;
  float* parts;  // [pieces, 2, cols]: sums for the id that a piece begins with, and for the one that it ends with
  const H* dx;
  const int32_t *rows, *ids, *starts;
  int64_t dtable_stride, dx_stride, cols;
  int runs, pieces;
  float scale;
  DropoutArguments dropout;
};

struct Run {
  int run = -1;  // -1: none, which is not long
  int begin = 0, end = 0;

  __device__ bool is_long() const { return end - begin > kPiece; }
};

// The run that holds a place in the list of rows, found by the whole warp: each lane looks at one of 32 parts.
template <class H>
__device__ Run run_at(const Arguments<H>& a, int place) {
  if (place >= a.starts[a.runs]) {
    return {};
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int low = 0, high = a.runs;  // starts[low] <= place < starts[high]
  while (high - low > 1) {
    const int part = (high - low + kWarp - 1) / kWarp;
    const int mine = low + lane * part;
    const uint32_t before = __ballot_sync(0xFFFFFFFF, mine < high && a.starts[mine] <= place);
    low += (__popc(before) - 1) * part;
    high = min(low + part, high);
  }
  return {low, a.starts[low], a.starts[low + 1]};
}

// The sum of dx, masked, over the rows at [begin, end) of the list, for the thread's columns.
template <bool kVector, class H>
__device__ void add_rows(float (&sums)[8], const Arguments<H>& a, int64_t col, int begin, int end) {
  constexpr int kTogether = 8;  // loads in flight
  const DropoutMask mask(a.dropout);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sums[i] = 0;
  }
  for (int first = begin; first < end; first += kWarp) {
    const int count = min(kWarp, end - first);
    const int mine = lane < count ? a.rows[first + lane] : 0;
    for (int base = 0; base < count; base += kTogether) {
      Half8<H> packed[kTogether];  // half the registers of floats while the loads are in flight
      int rows[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        rows[k] = __shfl_sync(0xFFFFFFFF, mine, base + k);
        if (base + k < count && col < a.cols) {
          packed[k] = load_packed<kVector>(a.dx + rows[k] * a.dx_stride, col, a.cols);
        }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (base + k < count && col < a.cols) {
          float values[8];
          packed[k].unpack(values);
          if (mask.on()) {
            mask.apply(values, rows[k], static_cast<uint32_t>(col / 8));
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            sums[i] += values[i];
          }
        }
      }
    }
  }
}

// Elements [col, col + 8) of a row; absent ones read as 0 and are not written.
struct Floats8 {
  float4 half[2] = {};

  template <bool kVector>
  __device__ void load(const float* from, int64_t col, int64_t cols) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (col + 4 * h < cols) {
        half[h] = load4<kVector>(from, col + 4 * h, cols);
      }
    }
  }

  // to = this + sums * scale.
  template <bool kVector>
  __device__ void add_and_store(float* to, int64_t col, int64_t cols, const float (&sums)[8], float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (col + 4 * h < cols) {
        half[h].x += sums[4 * h] * scale;
        half[h].y += sums[4 * h + 1] * scale;
        half[h].z += sums[4 * h + 2] * scale;
        half[h].w += sums[4 * h + 3] * scale;
        store4<kVector>(to, col + 4 * h, cols, half[h]);
      }
    }
  }
};

__device__ int64_t first_column() { return int64_t{kColumns} * blockIdx.y + int64_t{8} * (threadIdx.x % kWarp); }

// A warp's work: it adds up the rows at [begin, end) of the list.
struct Work {
  int begin = 0, end = 0;
  float* to = nullptr;  // null: no work
  bool part = false;    // sums are written to `to` and added up later; otherwise they are added to it
};

// Two warps share a piece of the list and add up the rows of its first and of its last id, if these have many rows.
// Each of the warps that follow has one run, if it is short.
template <class H>
__device__ Work work_of(const Arguments<H>& a, int warp) {
  if (warp < 2 * a.pieces) {
    const int begin = warp / 2 * kPiece, end = begin + kPiece;
    float* to = a.parts + warp * a.cols;
    const Run head = run_at(a, begin);
    if (warp % 2 == 0) {
      return head.is_long() ? Work{begin, min(end, head.end), to, true} : Work{};
    }
    const Run tail = run_at(a, end - 1);
    return tail.is_long() && tail.run > head.run ? Work{tail.begin, end, to, true} : Work{};
  }
  const int run = warp - 2 * a.pieces;
  if (run >= a.runs) {
    return {};
  }
  const int begin = a.starts[run], end = a.starts[run + 1];
  if (begin == end || end - begin > kPiece) {
    return {};
  }
  return {begin, end, a.dtable + a.ids[run] * a.dtable_stride, false};
}

template <class H, bool kVector>
__global__ void __launch_bounds__(kThreads, kVector ? 3 : 2) embed_backward_kernel(const Arguments<H> a) {
  await_previous();
  const Work work = work_of(a, static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp);
  if (work.to == nullptr) {
    return;
  }
  const int64_t col = first_column();
  Floats8 before;  // loaded while the rows are
  if (!work.part) {
    before.load<kVector>(work.to, col, a.cols);
  }
  float sums[8];
  add_rows<kVector>(sums, a, col, work.begin, work.end);
  before.add_and_store<kVector>(work.to, col, a.cols, sums, work.part ? 1.0F : a.scale);
}

// One warp per piece: it adds up the parts of the run with many rows that begins in the piece, if there is one.
template <class H, bool kVector>
__global__ void __launch_bounds__(kThreads, 2) add_parts_kernel(const Arguments<H> a) {
  await_previous();
  const int piece = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (piece >= a.pieces) {
    return;
  }
  const int64_t col = first_column();
  const int first = piece * kPiece;
  // Such a run reaches beyond the piece that it begins in, so it holds that piece's last place.
  const Run run = run_at(a, first + kPiece - 1);
  if (!run.is_long() || run.begin < first || col >= a.cols) {
    return;
  }
  float* to = a.dtable + a.ids[run.run] * a.dtable_stride;
  Floats8 before;
  before.load<kVector>(to, col, a.cols);
  float sums[8] = {};
#pragma unroll 8
  for (int p = piece; p <= (run.end - 1) / kPiece; ++p) {
    const bool tail = p == piece && run.begin > first;
    Floats8 part;
    part.load<kVector>(a.parts + (int64_t{2} * p + (tail ? 1 : 0)) * a.cols, col, a.cols);
    sums[0] += part.half[0].x, sums[1] += part.half[0].y, sums[2] += part.half[0].z, sums[3] += part.half[0].w;
    sums[4] += part.half[1].x, sums[5] += part.half[1].y, sums[6] += part.half[1].z, sums[7] += part.half[1].w;
  }
  before.add_and_store<kVector>(to, col, a.cols, sums, a.scale);
}

}  // namespace

void op::EmbedBackward::run(CudaBackend& gpu) const {
  require(dtable.dtype == DType::f32 && dx.dtype == DType::bf16,
          "embed_backward on a GPU takes bf16 rows and an f32 gradient, not {} and {}", name_of(dx.dtype),
          name_of(dtable.dtype));
  if (dx.size() == 0 || order.rows.cols == 0 || order.ids.cols == 0) {
    return;
  }
  const int64_t pieces = divide_up(order.rows.cols, kPiece);
  const Arguments<Bf16> arguments{data<float>(dtable),
                                  gpu.scratch<float>(pieces * 2 * dx.cols),
                                  data<const Bf16>(dx),
                                  data<const int32_t>(order.rows),
                                  data<const int32_t>(order.ids),
                                  data<const int32_t>(order.starts),
                                  dtable.stride,
                                  dx.stride,
                                  dx.cols,
                                  static_cast<int>(order.ids.cols),
                                  static_cast<int>(pieces),
                                  scale,
                                  DropoutArguments(dropout)};
  const bool vectors = vectors_of_8(dx) && aligned_16(dtable) && dtable.stride % 4 == 0;
  const int64_t columns = divide_up(dx.cols, kColumns);
  launch("embed_backward", vectors ? embed_backward_kernel<Bf16, true> : embed_backward_kernel<Bf16, false>,
         {{divide_up(2 * pieces + order.ids.cols, kWarps), columns}, kThreads, 0, gpu.queue()}, arguments);
  launch("add_parts", vectors ? add_parts_kernel<Bf16, true> : add_parts_kernel<Bf16, false>,
         {{divide_up(pieces, kWarps), columns}, kThreads, 0, gpu.queue()}, arguments);
}

}  // namespace tandem::backend
