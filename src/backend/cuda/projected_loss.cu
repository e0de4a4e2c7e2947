// The loss without a pass over the logits. With p the softmax and q the smoothed target, the gradient of the logits is
// scale * (p - q); q is u (LossPass::elsewhere) everywhere but at the label. So, with exponentials e = s p that the
// product writes instead of logits (exponential_epilogue.cuh), s their sum, and g = s (p - q + u) at the label:
//
//   dx = scale / s * (e w) - scale * u * (sum of w's rows)         a row of dx has one s
//   dw = e' (x * scale / s) - ones' (sum of x's rows) * scale * u  the second term as two more rows of both factors
//
// and e holds g at the label. Besides the three products, this leaves only passes over x and dx, which are small.
#include <algorithm>
#include <cfloat>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/hopper_products.h"
#include "backend/cuda/logit_row.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kRowsOfBlock = kWarp;                   // rows per block of row_losses_kernel
constexpr int kPerWarp = 8 * kWarp;                   // columns that a warp reads at one time
constexpr int kMostVectors = kWidestLoss / kPerWarp;  // such reads per row
// e^(logit - shift) at the label is about 2^this: so pieces that are 2^-36 times as likely still count, and a logit may
// be 131 above the label's before a smaller one is taken in its place (kMostExponent).
constexpr int kLabelExponent = -90;

// The arguments of the three kernels.
template <class H>
struct LossPass {
  int rows, pieces, d;
  const H* x;
  const H* w;
  H* dx;
  int64_t x_stride, w_stride, exponential_stride, dx_stride;
  double smoothing, elsewhere;  // the smoothed target of a piece that is not the label
  const StepState* state;
  H* exponentials;                         // [rows + spare, pieces]; at the label, later g
  ExponentialRows<H> product;              // what the product of the exponentials reads and writes besides them
  int row_parts;                           // parts of a row that have sums
  float* factors;                          // [rows]: scale / s; 0 if there is no label
  H* scaled;                               // [rows + spare, d]: x * scale / s, later e w
  int column_parts;                        // partial sums over the rows of x, and of w
  float *x_partial_sums, *w_partial_sums;  // [column_parts, d]
  float *x_sums, *w_sums;                  // [d]; null if nothing is smoothed
  LossTotals* losses;                      // [row blocks]
};

// ---- before the product: shifts, and sums over the rows of x and w in parts

// Calls body(v, i) for each of the eight columns of a warp's vectors.
template <int kVectors, class Body>
__device__ void each(const Body& body) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      body(v, i);
    }
  }
}

// Adds up what the block's warps hold for the same columns, in the warps' order, and writes it.
template <int kVectors>
__device__ void write_sums(float* to, const float (&sums)[kVectors][8], int d) {
  __shared__ float shared[kWarps][kVectors * kPerWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  each<kVectors>([&](int v, int i) { shared[warp][v * kPerWarp + lane * 8 + i] = sums[v][i]; });
  __syncthreads();
  for (int col = static_cast<int>(threadIdx.x); col < d; col += kThreads) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kWarps; ++k) {
      sum += shared[k][col];
    }
    to[col] = sum;
  }
}

// The warp's vectors of a row of d columns; 0 past its end.
template <int kVectors, class H>
__device__ void load_row(float (&to)[kVectors][8], const H* row, int d) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = v * kPerWarp + lane * 8;
    (col < d ? load_vector<H>(row + col) : Half8<H>{}).unpack(to[v]);
  }
}

template <int kVectors>
__device__ void add_row(float (&sums)[kVectors][8], const float (&row)[kVectors][8]) {
  each<kVectors>([&](int v, int i) { sums[v][i] += row[v][i]; });
}

// One warp per row: rows of x in the first column_parts blocks, rows of w in the others, if there are any.
template <class H, int kVectors>
__global__ void __launch_bounds__(kThreads) label_shifts_kernel(const LossPass<H> a) {
  await_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const bool of_x = blockIdx.x < static_cast<unsigned>(a.column_parts);
  const int block = of_x ? blockIdx.x : blockIdx.x - a.column_parts;
  const int first = block * kWarps + warp, step = a.column_parts * kWarps;
  float sums[kVectors][8] = {}, row[kVectors][8];
  if (!of_x) {
#pragma unroll 8
    for (int r = first; r < a.pieces; r += step) {
      load_row(row, a.w + r * a.w_stride, a.d);
      add_row(sums, row);
    }
  }
#pragma unroll 2
  for (int r = first; of_x && r < a.rows; r += step) {
    const int label = a.product.labels[r];
    float shift = 0;
    if (label >= 0) {
      float other[kVectors][8], product = 0;
      load_row(row, a.x + r * a.x_stride, a.d);
      load_row(other, a.w + label * a.w_stride, a.d);
      add_row(sums, row);
      each<kVectors>([&](int v, int i) { product += row[v][i] * other[v][i]; });
      // The shift of the logit as the product writes it, to within one step of its type.
      shift = to_float(from_float<H>(sum_of_warp(product))) * kLog2E - kLabelExponent;
    }
    if (lane == 0) {
      a.product.shifts[r] = shift;
    }
  }
  if (a.x_sums != nullptr) {
    write_sums((of_x ? a.x_partial_sums : a.w_partial_sums) + int64_t{block} * a.d, sums, a.d);
  }
}

// ---- after the product: each row's sum, its loss, and the factors of the gradients

struct RowSums {
  float sum, most;
  int first;  // the first part that has `most`
};

// NaN counts as more than anything.
__device__ bool is_more(float a, float b) { return a > b || (isnan(a) && !isnan(b)); }

// The sums of the block's rows, in the threads of its first warp; the other warps' shares come through shared memory.
template <class H>
__device__ RowSums row_sums(const LossPass<H>& a, int row) {
  __shared__ RowSums shared[kWarps][kRowsOfBlock];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  RowSums all{0, -INFINITY, 0};
  if (row < a.rows) {
#pragma unroll 16
    for (int part = warp; part < a.row_parts; part += kWarps) {
      const int64_t at = int64_t{part} * a.rows + row;
      const float most = to_float(a.product.most[at]);
      all.sum += a.product.sums[at];
      if (is_more(most, all.most)) {
        all.most = most;
        all.first = part;
      }
    }
  }
  shared[warp][lane] = all;
  __syncthreads();
  all = shared[0][lane];
#pragma unroll
  for (int k = 1; k < kWarps; ++k) {
    const RowSums more = shared[k][lane];
    all.sum += more.sum;
    if (is_more(more.most, all.most) || (more.most == all.most && more.first < all.first)) {
      all.most = more.most;
      all.first = more.first;
    }
  }
  return all;
}

// Whether no logit is larger than the label's, and none at a lower id is as large. If another one of the label's part
// is as large, the exponentials show where it is: they rise with their logits, except that two logits near 0 may have
// the same.
template <class H>
__device__ bool is_best(const LossPass<H>& a, int row, int label, float logit, const RowSums& others) {
  const int part = label / kExponentialCols;
  if (logit != others.most) {
    return logit > others.most;
  }
  if (others.first != part) {
    return others.first > part;
  }
  const H same = from_float<H>(shifted_exp(logit, a.product.shifts[row]));
  for (int col = part * kExponentialCols; col < label; ++col) {
    if (a.exponentials[row * a.exponential_stride + col] >= same) {
      return false;
    }
  }
  return true;
}

// Adds the row's loss, except for the part that x_sums and w_sums give for all rows at once, writes the gradient at
// the label, and returns scale / s.
template <class H>
__device__ float finish_row(LossTotals& totals, const LossPass<H>& a, int row, const RowSums& others) {
  const int label = a.product.labels[row];
  if (label < 0) {
    return 0;
  }
  const float logit = a.product.label_logits[row], shift = a.product.shifts[row];
  // The shift's logit is exact to a step of bf16, which beyond 4,096 may be more than an exponential holds.
  const float exponential = shifted_exp(logit, shift), at_label = exponential < FLT_MIN ? FLT_MIN : exponential;
  const float sum = others.sum + at_label;
  const double on_label = 1 - a.smoothing - a.elsewhere;
  // A logit beyond what an exponential holds outweighs all others.
  const double log_sum =
      fmax((log2(static_cast<double>(sum)) + static_cast<double>(shift)) * M_LN2, static_cast<double>(others.most));
  const double nll = log_sum - static_cast<double>(logit);
  totals.nll += nll;
  totals.smoothed += a.smoothing > 0 ? log_sum - on_label * static_cast<double>(logit) : nll;
  totals.correct += is_best(a, row, label, logit, others) ? 1 : 0;
  totals.tokens += 1;
  const float g = static_cast<float>(1 - on_label) * at_label - static_cast<float>(on_label) * others.sum;
  a.exponentials[row * a.exponential_stride + label] = from_float<H>(g);
  return a.state->loss_scale / sum;
}

// A warp's share of the block's rows of x.
template <class H, int kVectors>
struct OwnRows {
  static constexpr int kRows = kRowsOfBlock / kWarps;
  Half8<H> values[kRows][kVectors];

  // Calls body(own row, row of the block, vector, column) for the elements that exist.
  template <class Body>
  __device__ static void for_each(const LossPass<H>& a, int first_row, const Body& body) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int col = v * kPerWarp + lane * 8;
        if (first_row + warp + i * kWarps < a.rows && col < a.d) {
          body(i, warp + i * kWarps, v, col);
        }
      }
    }
  }
  __device__ void load(const LossPass<H>& a, int first_row) {
    for_each(a, first_row, [&](int i, int r, int v, int col) {
      values[i][v] = load_vector<H>(a.x + (first_row + r) * a.x_stride + col);
    });
  }
  // scaled = x * scale / s.
  __device__ void scale(const LossPass<H>& a, int first_row, const float* factors) {
    for_each(a, first_row, [&](int i, int r, int v, int col) {
      float row[8];
      values[i][v].unpack(row);
#pragma unroll
      for (float& value : row) {
        value *= factors[r];
      }
      store_vector(a.scaled + int64_t{first_row + r} * a.d + col, Half8<H>::pack(row));
    });
  }
};

// Adds up the partial sums of 32 columns of x (.x) and w (.y), for the first warp.
template <class H>
__device__ float2 add_partial(const LossPass<H>& a, int col) {
  __shared__ float2 shared[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  float2 sum = {};
  if (col < a.d) {
#pragma unroll 16
    for (int part = warp; part < a.column_parts; part += kWarps) {
      sum.x += a.x_partial_sums[int64_t{part} * a.d + col];
      sum.y += a.w_partial_sums[int64_t{part} * a.d + col];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  sum = {};
#pragma unroll
  for (int k = 0; k < kWarps; ++k) {
    sum.x += shared[k][lane].x;
    sum.y += shared[k][lane].y;
  }
  return sum;
}

// Writes what smoothing needs of 32 columns: their sums, and the spare rows below the last one. e's are 1; x's are the
// sum over its rows times -scale * u, in two parts, the second being what bf16 does not hold of it, and then 0.
template <class H>
__device__ void finish_columns(const LossPass<H>& a, int block, int blocks) {
  const int col = block * kWarp + static_cast<int>(threadIdx.x) % kWarp;
  const auto [x_sum, w_sum] = add_partial(a, col);
  if (threadIdx.x < kWarp && col < a.d) {
    a.x_sums[col] = x_sum;
    a.w_sums[col] = w_sum;
    const float whole = x_sum * -a.state->loss_scale * static_cast<float>(a.elsewhere);
    const H high = from_float<H>(whole);
    H* to = a.scaled + int64_t{a.rows} * a.d + col;
    for (int64_t i = 0; i < kSpareRows; ++i) {
      to[i * a.d] = i == 0 ? high : from_float<H>(i == 1 ? whole - to_float(high) : 0.0F);
    }
  }
  const float one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const auto ones = Half8<H>::pack(one);
  for (int64_t r = 0; r < kSpareRows; ++r) {
    for (int c = 8 * (block * kThreads + static_cast<int>(threadIdx.x)); c < a.pieces; c += 8 * kThreads * blocks) {
      store_vector(a.exponentials + (a.rows + r) * a.exponential_stride + c, ones);
    }
  }
}

// The first row_blocks blocks have kRowsOfBlock rows each, the others columns.
template <class H, int kVectors>
__global__ void __launch_bounds__(kThreads) row_losses_kernel(const LossPass<H> a, int row_blocks) {
  await_previous();
  __shared__ float factors[kRowsOfBlock];
  const int block = static_cast<int>(blockIdx.x);
  if (block >= row_blocks) {
    finish_columns(a, block - row_blocks, static_cast<int>(gridDim.x) - row_blocks);
    return;
  }
  const int first = block * kRowsOfBlock, row = first + static_cast<int>(threadIdx.x) % kWarp;
  OwnRows<H, kVectors> own;
  own.load(a, first);  // they load while the rows' sums are computed
  const RowSums others = row_sums(a, row);
  if (threadIdx.x < kWarp) {
    LossTotals totals;
    const float factor = row < a.rows ? finish_row(totals, a, row, others) : 0.0F;
    factors[threadIdx.x] = factor;
    if (row < a.rows) {
      a.factors[row] = factor;
    }
    totals = sum_of_warp(totals);
    if (threadIdx.x == 0) {
      a.losses[block] = totals;
    }
  }
  __syncthreads();
  own.scale(a, first, factors);
}

// ---- after the gradients' products

// One block adds up all rows' losses. Smoothing's share of the other logits, which are the products of all rows of x
// with all rows of w, is one product of their sums.
template <class H>
__device__ void add_totals(LossTotals* to, const LossPass<H>& a, int row_blocks) {
  __shared__ double shared[kWarps];
  LossTotals sum;
  for (int i = static_cast<int>(threadIdx.x); i < row_blocks; i += kThreads) {
    add_to(sum, a.losses[i]);
  }
  for (int col = static_cast<int>(threadIdx.x); a.x_sums != nullptr && col < a.d; col += kThreads) {
    sum.smoothed -= a.elsewhere * static_cast<double>(a.x_sums[col]) * static_cast<double>(a.w_sums[col]);
  }
  sum.smoothed = sum_of_block<kThreads>(sum.smoothed, shared);
  sum.nll = sum_of_block<kThreads>(sum.nll, shared);
  sum.correct = sum_of_block<kThreads>(sum.correct, shared);
  sum.tokens = sum_of_block<kThreads>(sum.tokens, shared);
  if (threadIdx.x == 0) {
    add_to(*to, sum);
  }
}

// dx = scaled * factor - scale * u * w_sums; the last block adds up the losses.
template <class H, int kVectors>
__global__ void __launch_bounds__(kThreads)
    scale_gradients_kernel(LossTotals* totals, const LossPass<H> a, int row_blocks) {
  await_previous();
  if (blockIdx.x + 1 == gridDim.x) {
    add_totals(totals, a, row_blocks);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const float other = a.state->loss_scale * static_cast<float>(a.elsewhere);
  float constant[kVectors][8] = {};
  each<kVectors>([&](int v, int i) {
    const int col = v * kPerWarp + lane * 8 + i;
    constant[v][i] = a.w_sums != nullptr && col < a.d ? a.w_sums[col] * other : 0.0F;
  });
  for (int row = static_cast<int>(blockIdx.x) * kWarps + warp; row < a.rows;
       row += (static_cast<int>(gridDim.x) - 1) * kWarps) {
    const float factor = a.factors[row], on = a.product.labels[row] < 0 ? 0.0F : 1.0F;
    float values[kVectors][8];
    load_row(values, a.scaled + int64_t{row} * a.d, a.d);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int col = v * kPerWarp + lane * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values[v][i] = values[v][i] * factor - constant[v][i] * on;
      }
      if (col < a.d) {
        store_vector(a.dx + row * a.dx_stride + col, Half8<H>::pack(values[v]));
      }
    }
  }
}

// Hands out pieces of one block of memory.
struct Pieces {
  std::byte* memory;
  size_t used = 0;

  template <class T>
  T* take(int64_t count) {
    T* const piece = reinterpret_cast<T*>(memory + used);
    used += static_cast<size_t>(divide_up(count * static_cast<int64_t>(sizeof(T)), 256)) * 256;
    return piece;
  }
};

// A null memory serves to find out how much is used.
LossPass<Bf16> pass_of(const op::ProjectedLoss& loss, int processors, Pieces& memory) {
  const int64_t rows = loss.x.rows, d = loss.x.cols, pieces = loss.w.rows(),
                row_parts = divide_up(pieces, kExponentialCols);
  const int column_parts = 2 * processors;
  const auto smoothing = static_cast<double>(loss.smoothing);
  const auto sums = [&] { return loss.smoothing == 0 ? nullptr : memory.take<float>(d); };
  return {.rows = static_cast<int>(rows),
          .pieces = static_cast<int>(pieces),
          .d = static_cast<int>(d),
          .x = data<const Bf16>(loss.x),
          .w = data<const Bf16>(loss.w.plain()),
          .dx = data<Bf16>(loss.dx),
          .x_stride = loss.x.stride,
          .w_stride = loss.w.plain().stride,
          .exponential_stride = loss.logits.stride,
          .dx_stride = loss.dx.stride,
          .smoothing = smoothing,
          .elsewhere = smoothing / static_cast<double>(pieces - 1),
          .state = loss.state,
          .exponentials = data<Bf16>(loss.logits),
          .product = {.labels = data<const int32_t>(loss.labels),
                      .shifts = memory.take<float>(rows),
                      .label_logits = memory.take<float>(rows),
                      .sums = memory.take<float>(rows * row_parts),
                      .most = memory.take<Bf16>(rows * row_parts)},
          .row_parts = static_cast<int>(row_parts),
          .factors = memory.take<float>(rows),
          .scaled = memory.take<Bf16>((rows + kSpareRows) * d),
          .column_parts = column_parts,
          .x_partial_sums = memory.take<float>(column_parts * d),
          .w_partial_sums = memory.take<float>(column_parts * d),
          .x_sums = sums(),
          .w_sums = sums(),
          .losses = memory.take<LossTotals>(divide_up(rows, kRowsOfBlock))};
}

template <class Body>
void with_vectors(int64_t d, const Body& body) {
  const int64_t vectors = divide_up(d, kPerWarp);
  vectors == 1   ? body.template operator()<1>()
  : vectors == 2 ? body.template operator()<2>()
  : vectors == 3 ? body.template operator()<3>()
                 : body.template operator()<kMostVectors>();
}

}  // namespace

size_t cuda::loss_scratch_bytes(const op::ProjectedLoss& loss, int processors) {
  Pieces counted{nullptr};
  pass_of(loss, processors, counted);
  return counted.used;
}

void op::ProjectedLoss::run(CudaBackend& gpu) const {
  if (kernel_of(*this, gpu.chip()) != ProductKernel::fused) {
    run_in_parts(gpu);
    return;
  }
  Pieces memory{gpu.scratch<std::byte>(0)};
  const LossPass<Bf16> a = pass_of(*this, gpu.processors(), memory);
  const bool smoothed = a.x_sums != nullptr;
  const int row_blocks = static_cast<int>(divide_up(a.rows, kRowsOfBlock));
  const int column_blocks = smoothed ? static_cast<int>(divide_up(a.d, kWarp)) : 0;
  const View e = logits.slice_rows(0, a.rows);
  const int64_t more = smoothed ? kSpareRows : 0;
  const View scaled = make_view(a.scaled, DType::bf16, a.rows + more, a.d, Memory::device);
  with_vectors(a.d, [&]<int kVectors>() {
    launch("label_shifts", label_shifts_kernel<Bf16, kVectors>,
           {a.column_parts * (smoothed ? 2 : 1), kThreads, 0, gpu.queue()}, a);
    fused_exponentials(e, x, w.plain(), a.product, gpu.processors(), gpu.queue());
    launch("row_losses", row_losses_kernel<Bf16, kVectors>, {row_blocks + column_blocks, kThreads, 0, gpu.queue()}, a,
           row_blocks);
    gpu.gemm().run({.c = dw,
                    .a = logits.slice_rows(0, a.rows + more),
                    .b = scaled,
                    .transpose_a = true,
                    .beta = accumulate ? 1.0F : 0.0F});
    gpu.gemm().run({.c = scaled.slice_rows(0, a.rows), .a = e, .b = w.plain()});
    launch("scale_gradients", scale_gradients_kernel<Bf16, kVectors>,
           {4 * gpu.processors() + 1, kThreads, 0, gpu.queue()}, totals, a, row_blocks);
  });
}

}  // namespace tandem::backend
