#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/logit_row.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class H>
struct Arguments {
  H* logits;
  int64_t stride, rows, cols;
  const int32_t* labels;
  double smoothing, other;  // the target is 1 - smoothing on the label and `other` on every other piece
  const StepState* state;   // null: no gradient
};

// Adds the loss of a row with the largest logit `most`; `sum` is that of e^(logit - most), `total` that of the logits.
template <class H>
__device__ void add_loss(LossTotals& totals, const Arguments<H>& a, float most, float logit, float sum, float total,
                         bool correct) {
  const double log_sum = log(static_cast<double>(sum));
  const double at_label = static_cast<double>(logit - most);
  const double nll = log_sum - at_label;
  const double shifted = static_cast<double>(total) - static_cast<double>(a.cols) * static_cast<double>(most);
  const double elsewhere = shifted - at_label;
  totals.smoothed += a.smoothing > 0 ? log_sum - (1 - a.smoothing) * at_label - a.other * elsewhere : nll;
  totals.nll += nll;
  totals.correct += correct ? 1 : 0;
  totals.tokens += 1;
}

// A block takes the rows blockIdx.x, blockIdx.x + gridDim.x, ... and writes the sums over them to parts[blockIdx.x].
template <class Row>
__global__ void __launch_bounds__(Row::kThreads, Row::kBlocks)
    cross_entropy_kernel(LossTotals* parts, Arguments<typename Row::Type> a) {
  await_previous();
  // Each is rewritten only after the barrier of the other, when no thread reads it any more.
  __shared__ float shared_most[kWarp];
  __shared__ float3 shared_sums[kWarp];
  const float scale = a.state == nullptr ? 0.0F : a.state->loss_scale;
  LossTotals totals;  // only thread 0 counts
  int next = a.labels[blockIdx.x];
  Row::fetch(a.logits + blockIdx.x * a.stride, a.cols);
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int label = next;
    const int64_t behind = r + gridDim.x;
    next = behind < a.rows ? a.labels[behind] : -1;
    auto* logits = a.logits + r * a.stride;
    const Row row = Row::take(logits, a.cols);
    const float my_most = row.largest();
    if (behind < a.rows) {
      Row::fetch(a.logits + behind * a.stride, a.cols);
    }
    if (label < 0) {
      if (a.state != nullptr) {
        Row::clear(logits, a.cols);
      }
      continue;
    }
    const float at_label = to_float(logits[label]);
    const float most = most_of_block<Row::kThreads>(my_most, shared_most);
    const float shift = most * kLog2E;
    float sum = 0, total = 0;
    row.each([&](float logit, int) {
      sum += shifted_exp(logit, shift);
      total += logit;
    });
    bool earlier = false;  // an equal logit at a lower id
    if (at_label == most && my_most == most) {
      row.each([&](float logit, int col) { earlier = earlier || (logit == most && col < label); });
    }
    const float3 sums = sums_of_block<Row::kThreads>({sum, total, earlier ? 1.0F : 0.0F}, shared_sums);
    if (a.state != nullptr) {
      const float factor = scale / sums.x;
      const float offset = scale * static_cast<float>(a.other);
      row.write(logits, [&](float logit) { return shifted_exp(logit, shift) * factor - offset; });
      if (Row::owns(label)) {
        const float gradient = shifted_exp(at_label, shift) * factor - scale * static_cast<float>(1 - a.smoothing);
        logits[label] = from_float<typename Row::Type>(gradient);
      }
    }
    if (threadIdx.x == 0) {
      add_loss(totals, a, most, at_label, sums.x, sums.y, at_label == most && sums.z == 0);
    }
  }
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = totals;
  }
}

// Runs as one warp.
__global__ void add_totals_kernel(LossTotals* totals, const LossTotals* parts, int count) {
  await_previous();
  LossTotals sum;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp) {
    add_to(sum, parts[i]);
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x == 0) {
    add_to(*totals, sum);
  }
}

}  // namespace

void op::CrossEntropy::run(CudaBackend& gpu) const {
  require(logits.dtype == DType::bf16 && labels.dtype == DType::i32,
          "cross_entropy on a GPU takes bf16 logits and i32 labels, not {} and {}", name_of(logits.dtype),
          name_of(labels.dtype));
  if (logits.size() == 0) {
    return;
  }
  const double eps = logits.cols > 1 ? static_cast<double>(smoothing) : 0.0;  // one piece: nothing to spread it on
  const Arguments<Bf16> arguments{data<Bf16>(logits),
                                  logits.stride,
                                  logits.rows,
                                  logits.cols,
                                  data<const int32_t>(labels),
                                  eps,
                                  logits.cols > 1 ? eps / static_cast<double>(logits.cols - 1) : 0.0,
                                  state};
  with_row_type<Bf16>(logits, [&]<class Row>() {
    const int blocks = static_cast<int>(std::min<int64_t>(logits.rows, int64_t{gpu.processors()} * Row::kBlocks));
    LossTotals* parts = gpu.scratch<LossTotals>(blocks);
    launch("cross_entropy", cross_entropy_kernel<Row>, {blocks, Row::kThreads, Row::kRoom, gpu.queue()}, parts,
           arguments);
    launch("add_totals", add_totals_kernel, {1, kWarp, 0, gpu.queue()}, totals, parts, blocks);
  });
}

}  // namespace tandem::backend
