#pragma once

#include "reference/values.h"

namespace tandem::reference {

// table[ids[i]] += rows[i]; an id of -1 is left out
inline void compute(const op::AddRows& op) {
  const Values rows(op.rows);
  Values table(op.table);
  for (int64_t i = 0; i < rows.rows; ++i) {
    const int32_t id = op.ids.host<int32_t>()[i];
    for (int64_t c = 0; id >= 0 && c < rows.cols; ++c) {
      table(id, c) += rows(i, c);
    }
  }
  write(op.table, table);
}

}  // namespace tandem::reference
