#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/hopper_products.h"
#include "backend/cuda/products.h"

namespace tandem::backend {

const cuda::Chip& CudaBackend::chip() {
  if (chip_.processors == 0) {
    const std::optional<int> clusters = cuda::norm_clusters_of_4(processors_);
    chip_ = {.processors = processors_,
             .hopper = clusters.has_value(),
             .clusters_of_4 = clusters.value_or(0),
             .sums = late_sums_->capacity(),
             .scratch_bytes = scratch_.bytes()};
  }
  return chip_;
}

namespace cuda {

namespace {

// ---- relu with dropout, its gradient, and exponentials of logits (fused_product.cu)
//
// cuBLASLt has no epilogue with dropout, and its own for relu's gradient takes 385 us, while the product alone takes 72
// (bench/results/train_step_H200_2026-11-15.md). With ours, 25,024 rows of base's feed-forward layer take 113 us
// forward and 92 backward, 4,032 rows 20.0 and 17.2, including a pass of 3.5 (train_step_H200_2026-11-16.md).
bool fused_takes(const View& result, const ConstView& a, const ConstView& w, const ConstView& gate, const Chip& chip) {
  const auto fits = [](const ConstView& view) { return vectors_of_8(view) && view.cols % kDepth == 0; };
  const bool gate_fits = gate.empty() || (reinterpret_cast<uintptr_t>(gate.data) % 8 == 0 && gate.stride % 2 == 0);
  return chip.hopper && fits(result) && fits(a) && fits(w) && gate_fits && result.rows < INT32_MAX / 2;
}

// ---- a product and the norm that follows it (linear_residual_norm.cu)
//
// Microseconds in a chain with a pass that makes x, with dropout, of this kernel and of cuBLASLt's best of eight
// algorithms followed by residual_norm (H200 at 700 W, sustained): 25,024 rows of 512 from 512: 39 and 50, from 2048:
// 92 and 105; 12,512 rows: 21 and 25, 55 and 51 (a second round with half of the clusters idle); 8,000 rows: 12 and
// 15.5, 29.5 and 32.7; 25,024 rows of 1024 from 1024: 115 and 141, from 4096: 357 and 345.
constexpr int64_t kDeepestNorm[] = {2048, 1024};  // 512 columns, 1024 columns
constexpr int64_t kFullRounds = 90;               // least percentage of clusters at work, over all rounds
constexpr int64_t kShallow = 512, kFullShallowRounds = 72;

bool norm_takes(const op::LinearResidualNorm& p, const Chip& chip) {
  const bool narrow = p.normed.cols == 2 * kTileCols, wide = p.normed.cols == 4 * kTileCols;
  const DropoutArguments dropout(p.dropout);
  const bool drops = !dropout.on() || quick_keep_possible<Bf16>(dropout.threshold);
  const bool pairs = reinterpret_cast<uintptr_t>(p.statistics.data) % 8 == 0 && p.statistics.stride % 2 == 0;
  const bool fits = p.x.dtype == DType::bf16 && p.gamma.dtype == DType::f32 && !p.sum.empty() && vectors_of_8(p.sum) &&
                    vectors_of_8(p.normed) && vectors_of_8(p.residual) && vectors_of_8(p.x) &&
                    vectors_of_8(p.w.plain());
  const int64_t depth = p.x.cols, clusters = narrow ? chip.processors / 2 : chip.clusters_of_4;
  if (!chip.hopper || !(narrow || wide) || !drops || !pairs || !fits || depth == 0 || depth % kDepth != 0 ||
      depth > kDeepestNorm[wide ? 1 : 0] || p.normed.rows == 0 || p.normed.rows >= INT32_MAX / 2 || clusters == 0) {
    return false;
  }
  const int64_t tiles = divide_up(p.normed.rows, kTileRows), rounds = divide_up(tiles, clusters);
  return tiles * 100 >= rounds * clusters * (depth <= kShallow && rounds > 1 ? kFullShallowRounds : kFullRounds);
}

// ---- two gradients of matrices (linear_backward_weights.cu)
//
// Microseconds between passes over 4 MB, cold cache, of this kernel and of the two products one after the other (the
// best of eight algorithms of cuBLASLt, or for 512 x 512 a kernel that was no slower): 512 x 512 and 1536 x 512, 1,000
// tokens: 7.3 and 10.6, 2,048: 10.2 and 14.0, 4,032: 16.2 and 21.6, 6,144: 22.9 and 29.7, 8,000: 28.7 and 38.5; 512 x
// 512 twice: 4.7 and 7.8, 7.4 and 10.5, 11.7 and 14.7, 17.5 and 18.9, 22.4 and 23.0. 512 x 2048 and 2048 x 512, 4,032
// tokens, each alone: 26.6 and 31.7.
constexpr int64_t kMostPairTokens = 8192;
constexpr int64_t kPairUnit = 64;  // columns of dy and x per copy of a tile

bool pair_fits(std::span<const WeightGradient> gradients) {
  const auto vectors = [](const ConstView& view) {
    return view.size() > 0 && vectors_of_8(view) && view.cols % kPairUnit == 0;
  };
  return gradients.size() == 2 && gradients[0].dy.rows <= kMostPairTokens &&
         std::ranges::all_of(gradients, [&](const WeightGradient& gradient) {
           const View& dw = gradient.dw;
           return vectors(gradient.dy) && vectors(gradient.x) && gradient.dy.rows == gradients[0].dy.rows &&
                  reinterpret_cast<uintptr_t>(dw.data) % sizeof(float4) == 0 && dw.stride % 4 == 0;
         });
}

}  // namespace

ProductKernel kernel_of(const op::Linear& p, const Chip& chip) {
  const bool relu = p.activation == Activation::relu, drops = DropoutArguments(p.dropout).on();
  const View gate = relu ? p.gate : View{};
  if ((relu || p.activation == Activation::none) && !drops && gate.empty()) {
    return ProductKernel::cublas;
  }
  return relu && !p.bias.empty() && vectors_of_8(p.bias) && fused_takes(p.y, p.x, p.w.plain(), gate, chip)
             ? ProductKernel::fused
             : ProductKernel::cublas_and_passes;
}

ProductKernel kernel_of(const op::LinearBackwardInput& p, const Chip& chip) {
  const int64_t sums = p.column_sums.empty() ? 0 : fused_parts(p.dx.rows) * p.dx.cols;
  if (p.activation == Activation::relu && !p.gate.empty() && sums <= chip.sums &&
      fused_takes(p.dx, p.dy, p.w.plain(), p.gate, chip)) {
    return ProductKernel::fused;
  }
  const bool masked = p.activation != Activation::none || DropoutArguments(p.dropout).on();
  return masked || !p.column_sums.empty() ? ProductKernel::cublas_and_passes : ProductKernel::cublas;
}

// The fewer rows a cluster has, the more multiprocessors are at work, which counts until all are. Products that do not
// fit at once even with the most rows keep all of them busy one after the other.
ProductKernel kernel_of(const op::LinearBackwardWeights& p, const Chip& chip) {
  if (chip.hopper && pair_fits(p.gradients)) {
    for (const auto& [kernel, rows] :
         {std::pair(ProductKernel::pair_64, 64), {ProductKernel::pair_128, 128}, {ProductKernel::pair_256, 256}}) {
      int64_t clusters = 0;
      for (const WeightGradient& gradient : p.gradients) {
        clusters += divide_up(gradient.dw.rows, rows) * divide_up(gradient.dw.cols, kPairCols);
      }
      if (2 * clusters <= chip.processors) {
        return kernel;
      }
    }
  }
  return ProductKernel::cublas;
}

ProductKernel kernel_of(const op::LinearResidualNorm& p, const Chip& chip) {
  if (!norm_takes(p, chip)) {
    return ProductKernel::cublas_and_passes;
  }
  return p.normed.cols == 2 * kTileCols ? ProductKernel::norm_of_2 : ProductKernel::norm_of_4;
}

// This saves 3 % of base's step (train_step_H200_2026-11-16.md).
ProductKernel kernel_of(const op::ProjectedLoss& p, const Chip& chip) {
  const bool fits = p.x.dtype == DType::bf16 && p.dw.dtype == DType::f32 && p.x.rows > 0 && p.w.rows() > 1 &&
                    p.x.cols <= kWidestLoss && p.w.rows() < kMostPieces && vectors_of_8(p.dx) &&
                    fused_takes(p.logits, p.x, p.w.plain(), {}, chip) &&
                    loss_scratch_bytes(p, chip.processors) <= chip.scratch_bytes;
  return fits ? ProductKernel::fused : ProductKernel::cublas_and_passes;
}

}  // namespace cuda
}  // namespace tandem::backend
