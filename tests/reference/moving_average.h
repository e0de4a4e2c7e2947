#pragma once

#include "reference/values.h"

namespace tandem::reference {

// average = decay * average + (1 - decay) * masters
inline void compute(const op::MovingAverage& op) {
  const Values masters(op.masters);
  Values average(op.average);
  const auto decay = static_cast<double>(op.update->average_decay);
  for (int64_t i = 0; op.update->finite != 0 && i < average.cols; ++i) {
    average(0, i) = decay * average(0, i) + (1 - decay) * masters(0, i);
  }
  write(op.average, average);
}

}  // namespace tandem::reference
