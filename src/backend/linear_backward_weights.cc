#include "backend/backend.h"

namespace tandem {

void Backend::linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts, bool accumulate) {
  for (const WeightGradient& gradient : gradients) {
    linear_backward_weight(gradient.dw, gradient.dbias, gradient.dy, gradient.x, parts, accumulate);
  }
}

}  // namespace tandem
