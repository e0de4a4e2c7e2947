#include "backend/backend.h"

namespace tandem {

void Backend::projected_loss(const ProjectedLoss& loss) {
  const View logits = loss.logits.slice_rows(0, loss.x.rows);
  linear(logits, loss.x, loss.w, {});
  cross_entropy(loss.totals, logits, loss.labels, loss.smoothing, loss.state);
  linear_backward_input(loss.dx, logits, loss.w, {}, false);
  linear_backward_weight(loss.dw, {}, logits, loss.x, loss.parts, loss.accumulate);
}

}  // namespace tandem
