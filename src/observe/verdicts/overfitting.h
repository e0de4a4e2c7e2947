// Does the model overfit? Validation against a fixed training sample, both in evaluation mode.
//
// Overfitting is validation that worsens beyond its noise while the training sample does not. A gap alone is not it (a
// model knows what it has seen), nor is a flat curve, nor a training loss above the evaluation loss (dropout is on in
// one and off in the other).
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: no, overfitting, both_worsen (that is divergence), diverged, no_sample (the training sample is not measured),
// too_early (fewer than 5 validations).
Verdict overfitting(const RunData& run);

}  // namespace tandem
