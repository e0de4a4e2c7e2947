#pragma once

#include "reference/values.h"

namespace tandem::reference {

// x[r] = dropout(table[tokens[r]] * scale + positions[position[r]])
inline void compute(const op::Embed& op) {
  const Values table(op.table.plain()), positions(op.positions);
  Values x(op.x.rows, op.x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const int32_t token = op.tokens.host<int32_t>()[r], position = op.position.host<int32_t>()[r];
    for (int64_t c = 0; c < x.cols; ++c) {
      const double value = table(token, c) * static_cast<double>(op.scale) + positions(position, c);
      x(r, c) = value * mask(op.dropout, r, c);
    }
  }
  write(op.x, x);
}

}  // namespace tandem::reference
