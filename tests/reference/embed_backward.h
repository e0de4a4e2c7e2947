#pragma once

#include "reference/values.h"

namespace tandem::reference {

// dtable[id] += scale * sum of masked dx over the id's rows
inline void compute(const op::EmbedBackward& op) {
  const Values dx(op.dx);
  Values dtable(op.dtable);
  const int32_t *rows = op.order.rows.host<int32_t>(), *ids = op.order.ids.host<int32_t>(),
                *starts = op.order.starts.host<int32_t>();
  for (int64_t run = 0; run < op.order.ids.cols; ++run) {
    for (int32_t i = starts[run]; i < starts[run + 1]; ++i) {
      for (int64_t c = 0; c < dx.cols; ++c) {
        dtable(ids[run], c) += static_cast<double>(op.scale) * dx(rows[i], c) * mask(op.dropout, rows[i], c);
      }
    }
  }
  write(op.dtable, dtable);
}

}  // namespace tandem::reference
