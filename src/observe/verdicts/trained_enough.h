// Is the model fully trained? By the slope of validation NLL and BLEU against their noise, never by a step count.
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: still_improving, unclear (perhaps improving), flat, worsening, mixed (NLL and BLEU disagree), not_learning,
// diverged, too_early (fewer than 5 validations), no_validation.
Verdict trained_enough(const RunData& run, const RunPlan& plan = {});

}  // namespace tandem
