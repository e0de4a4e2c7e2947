// Ops that run as a sequence of other ops, unless a device has something faster.
#include "backend/cpu/cpu_backend.h"

namespace tandem::backend {

void op::LinearResidualNorm::run_in_parts(Backend& backend) const {
  backend.run(Linear{.y = branch, .x = x, .w = w, .bias = bias});
  backend.run(ResidualNorm{.sum = sum,
                           .normed = normed,
                           .statistics = statistics,
                           .residual = residual,
                           .branch = branch,
                           .gamma = gamma,
                           .beta = beta,
                           .dropout = dropout});
}

void op::LinearResidualNorm::run(CpuBackend& cpu) const { run_in_parts(cpu); }

void op::ProjectedLoss::run_in_parts(Backend& backend) const {
  const View rows = logits.slice_rows(0, x.rows);
  const WeightGradient gradient{.dw = dw, .dy = rows, .x = x};
  backend.run(Linear{.y = rows, .x = x, .w = w});
  backend.run(CrossEntropy{.totals = totals, .logits = rows, .labels = labels, .smoothing = smoothing, .state = state});
  backend.run(LinearBackwardInput{.dx = dx, .dy = rows, .w = w});
  backend.run(LinearBackwardWeights{.gradients = {&gradient, 1}, .parts = parts, .accumulate = accumulate});
}

void op::ProjectedLoss::run(CpuBackend& cpu) const { run_in_parts(cpu); }

}  // namespace tandem::backend
