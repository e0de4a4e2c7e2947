// Whether a loss has risen since a validation, the best one say.
#pragma once

#include "observe/verdicts/validation_series.h"

namespace tandem {

size_t best_of(const ValidationSeries& losses);  // index of the lowest; wants at least one

struct Rise {
  double amount = 0;     // mean of now - mean around then
  double threshold = 0;  // what noise alone exceeds in 1 % of cases
  bool known = false;    // there are points for both
  bool beyond = false;   // the loss rose beyond its noise: by that amount, or along a line since then
  bool below = false;    // the same, fallen
};

// Wants kFewestValidations.
Rise rise_since(const ValidationSeries& losses, size_t best);

}  // namespace tandem
