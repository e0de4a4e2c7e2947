#pragma once

#include "reference/values.h"

namespace tandem::reference {

inline void compute(const op::Copy& op) { write(op.to, Values(op.from)); }

inline void compute(const op::FillZero& op) { write(op.to, Values(op.to.rows, op.to.cols)); }

}  // namespace tandem::reference
