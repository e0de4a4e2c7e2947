// What is a step, and how long does it take?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: steady, slowing_down, slow_data (waiting for data takes much of a step), evaluation_heavy (validations and
// checkpoints take much of the run), empty. The first that applies, in that order after steady.
Verdict step_time(const RunData& run);

}  // namespace tandem
