// The learning rate explained: policy, formula, highest value, now.
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: as_planned, lowered (the applied rate is below the formula's: rollbacks), differs, no_plan, empty.
Verdict learning_rate_explained(const RunData& run, const RunPlan& plan);

}  // namespace tandem
